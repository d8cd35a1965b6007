package httpapi

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

// FuzzJSON checks that every request that decodes has the same meaning after it is
// encoded, and that nothing but the caller's mistake is reported otherwise.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{"", "{}", `{"resource":"a","ttl":"10s","nonce":7,"metadata":{"k":"v"},"permits":3}`,
		`{"resources":["a","b"]}`, `{"resource":"a"}{}`,
		`{"resource":"a","resource":"b"}`, `{"nonce":1e3}`, `{"nonce":"9007199254740993"}`,
		`{"sessionId":"","session_id":""}`, "{\"resource\":\"\xff\"}", `{"resource":"\ud800"}`,
		`{"policy":{"prefix":"a","mode":"efficiency"},"version":9007199254740993}`, `[[[[`, `{"a":{"a":{"a":`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, m := range []proto.Message{&pb.AcquireRequest{}, &pb.SetPolicyRequest{}, &pb.SetFleetRequest{},
			&pb.WatchRequest{}} {
			if err := decode(body, m); err != nil {
				require.ErrorIs(t, err, engine.ErrInvalid)
				continue
			}
			text := Encode(m)
			require.True(t, json.Valid(text), "%s", text)
			again := m.ProtoReflect().New().Interface()
			require.NoError(t, decode(text, again))
			require.True(t, proto.Equal(m, again), "%s", text)
		}
	})
}
