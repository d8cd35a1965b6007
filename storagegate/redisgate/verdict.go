package redisgate

import (
	"fmt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

// verdict is what a script of this package has answered.
type verdict struct {
	kind     string        // the word that the answer begins with
	mark     fencing.Token // of a refusal
	admitted bool          // the mark stands at the token
	failed   error         // why a command failed
	value    any           // what a caller's script returned
}

// read understands the answers that scripts/*.lua describe.
func read(answer any) verdict {
	list, ok := answer.([]any)
	if !ok || len(list) == 0 {
		return verdict{admitted: true}
	}
	v := verdict{}
	v.kind, _ = list[0].(string)
	list = append(list, nil, nil) // Redis ends a list at the first nil
	switch v.kind {
	case "stale", "jump":
		text, _ := list[1].(string)
		mark, err := fencing.ParseToken(text)
		if err != nil { // a number, or the script had refused to compare it
			return verdict{failed: fmt.Errorf("read the mark: %w", err)}
		}
		v.mark = mark
	case "failed":
		if v.admitted = list[1] != int64(0); !v.admitted {
			v.failed = fmt.Errorf("the server says: %v", list[2])
			break
		}
		v.failed = fmt.Errorf("%w: %v commands were carried out, then one failed: %v", storagegate.ErrUncertain, list[1], list[2])
	case "raised":
		v.admitted = true
		v.failed = fmt.Errorf("%w: the script failed and may have written before: %v", storagegate.ErrUncertain, list[1])
	default:
		v.admitted, v.value = true, list[1]
	}
	return v
}
