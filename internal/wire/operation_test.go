package wire_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// randomRequest returns a request with any combination of fields.
func randomRequest(r *rand.Rand) *engine.Request {
	text := func(n int) string { return strings.Repeat("é", r.IntN(n)) }
	request := &engine.Request{Nonce: engine.Nonce(r.Uint64() >> r.IntN(64)), Kind: engine.Kind(r.IntN(3)),
		Permits: r.IntN(2) * r.IntN(20_000),
		Mode:    engine.Mode(r.IntN(3)), Wait: r.IntN(2) == 0, Holder: text(200)}
	for range r.IntN(4) {
		request.Resources = append(request.Resources, fencing.Resource(text(200)))
	}
	for range r.IntN(3) {
		if request.Metadata == nil {
			request.Metadata = map[string]string{}
		}
		request.Metadata[text(30)] = text(3)
	}
	return request
}

// TestOperationsAreEncodedAsProtobuf compares the encoders with proto.Marshal.
func TestOperationsAreEncodedAsProtobuf(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var encoded []byte
		want := &pb.SessionRequest{}
		for range 1 + r.IntN(3) {
			h := wire.Header{ID: r.Uint64() >> r.IntN(64), Session: engine.NewSessionID(), Traceparent: strings.Repeat("t",
				r.IntN(2)*r.IntN(200))}
			op := &pb.Operation{Id: h.ID, Session: h.Session[:], Traceparent: h.Traceparent}
			switch request := randomRequest(r); r.IntN(3) {
			case 0:
				ttl := time.Duration(r.IntN(2) * r.Int())
				encoded = wire.AppendAcquire(encoded, h, request, ttl)
				call := wire.FromRequest(request)
				call.TtlNanos = int64(ttl)
				op.Call = &pb.Operation_Acquire{Acquire: call}
			case 1:
				encoded = wire.AppendRelease(encoded, h, request.Nonce)
				op.Call = &pb.Operation_Release{Release: &pb.ReleaseCall{Nonce: uint64(request.Nonce)}}
			default:
				op.Call = &pb.Operation_Open{Open: &pb.OpenCall{TtlNanos: r.Int64()}}
				var err error
				encoded, err = wire.AppendOperation(encoded, h, &pb.Operation{Call: op.Call})
				require.NoError(t, err)
			}
			want.Operations = append(want.Operations, op)
		}
		have := &pb.SessionRequest{}
		require.NoError(t, proto.Unmarshal(encoded, have))
		require.True(t, proto.Equal(want, have), "want %v\nhave %v", want, have)
		require.Len(t, encoded, proto.Size(want))
	}
}

// checkResponse compares Decode with proto.Unmarshal.
func checkResponse(t *testing.T, encoded []byte) {
	t.Helper()
	want, have := &pb.SessionResponse{}, &wire.Response{Answers: make([]wire.Answer, 1)}
	err := proto.Unmarshal(encoded, want)
	if err != nil {
		return // Decode accepts more: it does not look into a field that it does not know
	}
	require.NoError(t, have.Decode(encoded))
	require.Len(t, have.Answers, len(want.Answers))
	for i, a := range want.Answers {
		if full := have.Answers[i].Full; full != nil {
			require.True(t, proto.Equal(a, full))
			require.Equal(t, a.Id, have.Answers[i].ID)
			continue
		}
		mode, err := wire.ParseMode(a.Mode)
		require.NoError(t, err)
		require.Equal(t, wire.Answer{ID: a.Id, Token: a.Token, Slot: a.Slot, Mode: mode}, have.Answers[i])
		require.Nil(t, a.Error)
		require.Empty(t, a.Holds)
		require.Empty(t, a.Name)
		require.Empty(t, a.Lost)
	}
	require.Len(t, have.Notices, len(want.Notices))
	for i, n := range want.Notices {
		require.True(t, proto.Equal(n, have.Notices[i]))
	}
}

// responses are answers of all kinds.
var responses = []*pb.SessionResponse{
	{},
	{Answers: []*pb.Answer{{Id: 1}, {Id: 2, Token: 1 << 50, Mode: "correctness"}, {Id: 3, Token: 7, Mode: "efficiency",
		Slot: 9_999, Name: "n"}}},
	{Answers: []*pb.Answer{{Id: 4, Mode: "unknown"}, {Id: 5, Slot: -1},
		{Id: 6, Error: &pb.Error{Code: "held", Message: "no"}}}},
	{Answers: []*pb.Answer{{Id: 7, Holds: []*pb.Hold{{Nonce: 1, Token: 2}}}, {Lost: []*pb.Notice{{Nonce: 3}}}},
		Notices: []*pb.Notice{{Session: []byte{1}, Nonce: 2}, {Lost: &pb.Error{Code: "taken"}}}},
}

func TestResponsesAreDecodedAsProtobuf(t *testing.T) {
	for _, response := range responses {
		encoded, err := proto.Marshal(response)
		require.NoError(t, err)
		checkResponse(t, encoded)
		for n := range encoded {
			checkResponse(t, encoded[:n])
		}
	}
	var answer wire.Answer
	require.NoError(t, answer.Err())
	require.Error(t, (&wire.Response{}).Decode([]byte{0x0a, 5, 1}), "a message that is cut off")
	require.Error(t, (&wire.Response{}).Decode([]byte{0x0a, 1, 0xff}), "an answer that is cut off")
}

func FuzzResponse(f *testing.F) {
	for _, response := range responses {
		encoded, err := proto.Marshal(response)
		require.NoError(f, err)
		f.Add(encoded)
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		checkResponse(t, encoded)
		_ = (&wire.Response{}).Decode(encoded)
	})
}

// TestOperationsAllocateNothing checks that the operations of a busy client need no memory.
func TestOperationsAllocateNothing(t *testing.T) {
	encoded, err := proto.Marshal(&pb.SessionResponse{Answers: []*pb.Answer{{Id: 1},
		{Id: 2, Token: 1 << 50, Mode: "correctness"}}})
	require.NoError(t, err)
	var (
		b       = make([]byte, 0, 4096)
		h       = wire.Header{ID: 7, Session: engine.NewSessionID()}
		request = &engine.Request{Nonce: 9, Resources: []fencing.Resource{"jobs/7"}, Mode: engine.Correctness, Wait: true,
			Holder: "host:1"}
		response wire.Response
	)
	require.Zero(t, testing.AllocsPerRun(1000, func() { b = wire.AppendAcquire(b[:0], h, request, 0) }), "acquire")
	require.Zero(t, testing.AllocsPerRun(1000, func() { b = wire.AppendRelease(b[:0], h, 9) }), "release")
	require.Zero(t, testing.AllocsPerRun(1000, func() { _ = response.Decode(encoded) }), "answers")
}

func BenchmarkAppendAcquire(b *testing.B) {
	buffer := make([]byte, 0, 4096)
	h := wire.Header{ID: 7, Session: engine.NewSessionID()}
	request := &engine.Request{Nonce: 9, Resources: []fencing.Resource{"jobs/7"}, Mode: engine.Correctness, Wait: true,
		Holder: "host:1"}
	b.Run("direct", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buffer = wire.AppendAcquire(buffer[:0], h, request, 0)
		}
	})
	b.Run("message", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buffer, _ = wire.AppendOperation(buffer[:0], h,
				&pb.Operation{Call: &pb.Operation_Acquire{Acquire: wire.FromRequest(request)}})
		}
	})
}

func BenchmarkDecodeResponse(b *testing.B) {
	encoded, err := proto.Marshal(&pb.SessionResponse{Answers: []*pb.Answer{{Id: 2, Token: 1 << 50, Mode: "correctness"}}})
	require.NoError(b, err)
	b.Run("direct", func(b *testing.B) {
		b.ReportAllocs()
		var response wire.Response
		for b.Loop() {
			_ = response.Decode(encoded)
		}
	})
	b.Run("message", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = proto.Unmarshal(encoded, &pb.SessionResponse{})
		}
	})
}
