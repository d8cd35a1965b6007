package redisgate

import (
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

// reply is the decoded result of a script.
type reply struct {
	kind     string        // the first element
	mark     fencing.Token // of a refusal, or of a reset that found another mark
	admitted bool          // the mark is the token
	failed   error         // why a command failed
	value    any           // the result of a caller's script
}

// parseReply decodes the results that the headers of scripts/*.lua describe.
func parseReply(result any) reply {
	list, ok := result.([]any)
	if !ok || len(list) == 0 {
		return reply{admitted: true}
	}
	v := reply{}
	v.kind, _ = list[0].(string)
	list = append(list, nil, nil) // Redis truncates a list at the first nil
	switch v.kind {
	case "stale", "jump", "changed":
		text, _ := list[1].(string)
		mark, err := fencing.ParseToken(text)
		if err != nil { // not possible: the script has compared it as a number
			return reply{failed: fmt.Errorf("read the mark: %w", err)}
		}
		v.mark = mark
	case "failed":
		if v.admitted = list[1] != int64(0); !v.admitted {
			v.failed = fmt.Errorf("the server returned: %v", list[2])
			break
		}
		v.failed = fmt.Errorf("%w: %v commands were executed before one failed: %v",
			storagegate.ErrUncertain, list[1], list[2])
	case "raised":
		v.admitted = true
		v.failed = fmt.Errorf("%w: the script failed and may have written: %v", storagegate.ErrUncertain, list[1])
	default:
		v.admitted, v.value = true, list[1]
	}
	return v
}
