package callgate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/storagegate/callgate"
)

// FuzzRefusal checks that the detail of a server's error that a client accepts has the
// same meaning when it is encoded again.
func FuzzRefusal(f *testing.F) {
	f.Add(callgate.ReasonStale, "a", "1", "2", "")
	f.Add(callgate.ReasonJump, "a", "1", "2", "3")
	f.Add(callgate.ReasonJump, "", "-1", "x", "9007199254740992")
	f.Fuzz(func(t *testing.T, reason, resource, token, mark, jump string) {
		detail := map[string]string{"resource": resource, "token": token, "mark": mark, "max_jump": jump}
		again, metadata := callgate.RPCDetail(callgate.RPCRefusal(callgate.Domain, reason, detail))
		if again == "" {
			return // another error, or a malformed one
		}
		require.Equal(t, reason, again)
		require.Equal(t, resource, metadata["resource"])
		require.Equal(t, token, metadata["token"])
		require.Equal(t, mark, metadata["mark"])
	})
}
