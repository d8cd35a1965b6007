package wire_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// encoded returns a message as bytes.
func encoded(f *testing.F, m proto.Message) []byte {
	f.Helper()
	data, err := proto.Marshal(m)
	require.NoError(f, err)
	return data
}

// FuzzRequest checks that every acquire that converts has the same meaning after a
// second conversion, and that Validate decides whether an engine may see it.
func FuzzRequest(f *testing.F) {
	f.Add(encoded(f, &pb.AcquireCall{Nonce: 1, Resources: []string{"b", "a", "b"}, Mode: "efficiency", Wait: true,
		Holder: "h", Metadata: map[string]string{"k": "v"}}))
	f.Add(encoded(f, &pb.AcquireCall{Permits: 3, Resources: []string{"\x00"}}))
	f.Add(encoded(f, &pb.AcquireCall{Permits: -1, Shared: true, Mode: "x"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		var call pb.AcquireCall
		if proto.Unmarshal(data, &call) != nil {
			return
		}
		request, err := wire.ToRequest(&call)
		if err != nil {
			require.ErrorIs(t, err, engine.ErrInvalid)
			return
		}
		again, err := wire.ToRequest(wire.FromRequest(&request))
		require.NoError(t, err)
		require.Equal(t, request.Nonce, again.Nonce)
		require.Equal(t, request.Resources, again.Resources)
		require.Equal(t, request.Kind, again.Kind)
		require.Equal(t, request.Permits, again.Permits)
		require.Equal(t, request.Mode, again.Mode)
		require.Equal(t, request.Holder, again.Holder)
		if request.Validate() == nil {
			require.NotEmpty(t, request.Resources)
			require.LessOrEqual(t, len(request.Resources), engine.MaxResources)
			require.NotZero(t, request.Nonce)
			for _, r := range request.Resources {
				require.NoError(t, r.Validate())
			}
		}
	})
}

// FuzzAnswers checks the messages that a client reads from a service: topologies,
// locks, held leases and errors. What converts keeps its meaning.
func FuzzAnswers(f *testing.F) {
	f.Add(encoded(f, &pb.Topology{Version: 3, Ready: true,
		Policies: []*pb.Policy{{Prefix: "a", Mode: "efficiency", Ttl: "10s"}},
		Fleet:    &pb.RedisFleet{Namespace: "n", Addresses: []string{"a:1"}, MaxTtl: "1m"}}))
	f.Add(encoded(f, &pb.Lock{Resource: "a", Mode: "correctness",
		Holders: []*pb.Party{{SessionId: engine.SessionID{1}.String(), Token: 7, Kind: "shared", TtlLeft: "5s"}}}))
	for _, since := range []string{"2024-02-29T12:00:00.5+01:00", "9999-12-31T23:59:59-01:00", "0000-01-01T00:00:00+01:00",
		"0001-01-01T00:00:00Z", "yesterday"} {
		f.Add(encoded(f, &pb.Lock{Resource: "a", Holders: []*pb.Party{{Since: since}}}))
	}
	f.Add(encoded(f, &pb.HeldLease{Nonce: 1, Name: "n", Resources: []string{"a"}, Token: 1, TtlNanos: int64(time.Second)}))
	f.Add(encoded(f, &pb.Error{Code: "mode-mismatch", Resource: "a", Mode: "efficiency", ExpectedMode: "correctness"}))
	f.Add(encoded(f, &pb.Error{Code: "nonsense"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		var topology pb.Topology
		if proto.Unmarshal(data, &topology) == nil {
			if converted, err := wire.ToTopology(&topology); err == nil {
				again, err := wire.ToTopology(wire.FromTopology(converted))
				require.NoError(t, err)
				require.Equal(t, converted, again)
			}
		}
		var lock pb.Lock
		if proto.Unmarshal(data, &lock) == nil {
			if converted, err := wire.ToStatusOf(&lock); err == nil {
				again, err := wire.ToStatusOf(wire.FromStatusOf(converted, time.Time{}))
				require.NoError(t, err)
				require.Equal(t, converted, again)
			}
		}
		var held pb.HeldLease
		if proto.Unmarshal(data, &held) == nil {
			converted := wire.ToHeld(engine.SessionID{1}, &held)
			require.Equal(t, converted, wire.ToHeld(engine.SessionID{1}, wire.FromHeld(converted)))
		}
		var failure pb.Error
		if proto.Unmarshal(data, &failure) == nil {
			err := wire.ToError(&failure)
			require.Error(t, err)
			require.Equal(t, wire.FromError(err).Code, wire.FromError(wire.ToError(wire.FromError(err))).Code)
		}
	})
}
