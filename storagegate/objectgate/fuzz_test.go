package objectgate

import (
	"bytes"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

// FuzzObject checks that the mark and the content of an object are read as the gate
// has written them, and that an object that the gate cannot have written is refused.
func FuzzObject(f *testing.F) {
	f.Add("7", "nonce", "leased:1 nonce\ndata", "Content")
	f.Add("07", "", "data", "leased-x")
	f.Add("9007199254740992", "a,b", "leased:1", "LEASED-mark")
	f.Add("", ",", "\n", "")
	f.Fuzz(func(t *testing.T, mark, writes, content, name string) {
		head := &s3.HeadObjectOutput{Metadata: map[string]string{markKey: mark, writesKey: writes}}
		if !reserved(name) {
			head.Metadata[name] = "value"
		}
		o, err := parse(head)
		want, markErr := fencing.ParseToken(mark)
		if markErr != nil {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		require.Equal(t, want, o.mark)
		for own := range o.attributes.Metadata {
			require.False(t, reserved(own), "the gate's metadata is shown to callers")
		}
		if data, err := o.data([]byte(content)); err == nil {
			require.True(t, bytes.HasPrefix([]byte(content), []byte(linePrefix)))
			require.True(t, bytes.HasSuffix([]byte(content), data))
		}
	})
}
