package remote_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/lease/engine"
)

// TestAnswersReachTheirCallers checks that every caller gets the answer to its own
// operation, also while other callers give up.
func TestAnswersReachTheirCallers(t *testing.T) {
	m := startMember(t)
	m.answer = func(op *pb.Operation) *pb.Answer {
		if acquire := op.GetAcquire(); acquire != nil {
			return &pb.Answer{Token: acquire.Nonce, Mode: "correctness"}
		}
		return &pb.Answer{}
	}
	s, _, _ := openSession(t, backend(t, remote.Config{}, m))
	var callers sync.WaitGroup
	for worker := range 16 {
		callers.Go(func() {
			for i := range 200 {
				nonce := engine.Nonce(worker*1000 + i + 1)
				ctx, cancel := context.WithCancel(context.Background())
				if worker%2 == 0 {
					time.AfterFunc(rand.N(500*time.Microsecond), cancel)
				}
				grant, err := s.Acquire(ctx, one(nonce))
				cancel()
				if err == nil && grant.Token != fencing.Token(nonce) {
					t.Errorf("attempt %d got the token %d of another attempt", nonce, grant.Token)
				}
			}
		})
	}
	callers.Wait()
}

// TestCallersDoNotWaitForAMemberThatDoesNotRead checks that a call returns when its context
// ends, although gRPC cannot send its operation.
func TestCallersDoNotWaitForAMemberThatDoesNotRead(t *testing.T) {
	m := startMember(t)
	m.answer = leader(1)
	s, _, _ := openSession(t, backend(t, remote.Config{}, m))
	stalled, resume := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(resume) })
	m.set(func() {
		m.answer = func(*pb.Operation) *pb.Answer {
			close(stalled)
			<-resume
			return nil
		}
	})
	request := one(1)
	request.Wait, request.Metadata = true, map[string]string{"k": strings.Repeat("x", 4000)}
	go func() { _, _ = s.Acquire(bounded(t), request) }()
	<-stalled
	ended, cancel := context.WithCancel(bounded(t))
	cancel()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		for range 1000 { // 4 MB, one after the other, so that each caller finds the sender idle
			request.Nonce++
			_, _ = s.Acquire(ended, request)
		}
	}()
	select {
	case <-returned:
	case <-time.After(testTimeout):
		t.Fatal("a caller waits for the member although its context has ended")
	}
}

// TestUnansweredOperationClosesTheConnection checks that a member which does not answer
// within the timeout is not used for the next call.
func TestUnansweredOperationClosesTheConnection(t *testing.T) {
	m := startMember(t)
	b := backend(t, remote.Config{Timeout: 300 * time.Millisecond}, m)
	open := func() error {
		_, err := b.Open(bounded(t), engine.SessionConfig{ID: engine.NewSessionID(), TTL: ttl})
		return err
	}
	err := open()
	require.ErrorIs(t, err, engine.ErrUncertain)
	require.ErrorContains(t, err, fmt.Sprintf("%s did not answer within 180ms", m.address))
	m.set(func() { m.answer = leader(1) })
	eventually(t, "a session is opened on a new connection", func() bool { return open() == nil })
	m.mu.Lock()
	defer m.mu.Unlock()
	require.Greater(t, m.streams, 1)
}

// BenchmarkSession measures an acquire and a release over a real stream. The allocations
// include those of the member.
func BenchmarkSession(b *testing.B) {
	m := startMember(b)
	m.answer = leader(1)
	backend := backend(b, remote.Config{}, m)
	s, err := backend.Open(b.Context(), engine.SessionConfig{ID: engine.NewSessionID(), TTL: time.Hour})
	require.NoError(b, err)
	var nonce atomic.Uint64
	b.ReportAllocs()
	b.SetParallelism(128)
	b.RunParallel(func(loop *testing.PB) {
		for loop.Next() {
			n := engine.Nonce(nonce.Add(1))
			if _, err := s.Acquire(b.Context(), one(n)); err != nil {
				b.Error(err)
			}
			if err := s.Release(b.Context(), engine.Held{Nonce: n}); err != nil {
				b.Error(err)
			}
		}
	})
}
