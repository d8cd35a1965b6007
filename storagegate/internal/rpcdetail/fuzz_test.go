package rpcdetail_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/leased-project/leased/storagegate/internal/rpcdetail"
)

// FuzzRefusal checks that the detail of a server's error that a client accepts has the
// same meaning when it is encoded again.
func FuzzRefusal(f *testing.F) {
	f.Add(rpcdetail.ReasonStale, "a", "1", "2", "")
	f.Add(rpcdetail.ReasonJump, "a", "1", "2", "3")
	f.Add(rpcdetail.ReasonJump, "", "-1", "x", "9007199254740992")
	f.Fuzz(func(t *testing.T, reason, resource, token, mark, jump string) {
		detail := &errdetails.ErrorInfo{Domain: rpcdetail.Domain, Reason: reason,
			Metadata: map[string]string{"resource": resource, "token": token, "mark": mark, "max_jump": jump}}
		info := rpcdetail.Info(rpcdetail.Refusal(detail))
		if info == nil {
			return // another error, or a malformed one
		}
		require.Equal(t, reason, info.Reason)
		require.Equal(t, resource, info.Metadata["resource"])
		require.Equal(t, token, info.Metadata["token"])
		require.Equal(t, mark, info.Metadata["mark"])
	})
}
