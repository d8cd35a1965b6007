package postgres

import (
	"context"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

// The statements of a batch.
const (
	AcquireLocks = acquireLocks
	ReleaseLocks = releaseLocks
)

// ReleaseTogether releases attempts of a session in one transaction.
func ReleaseTogether(ctx context.Context, s engine.Session, held ...engine.Held) error {
	of := s.(*session)
	var calls []*call
	for _, h := range held {
		calls = append(calls, &call{ctx: ctx, name: string(h.Resources[0]), attempt: of.attempt(h.Nonce)})
	}
	_, err := of.backend.release(ctx, calls)
	return err
}

// Gather keeps the acquires of a backend waiting until n of them share a transaction, and then makes them.
func Gather(b *Backend, n int) (complete func() bool) {
	acquires := b.acquires
	acquires.mu.Lock()
	defer acquires.mu.Unlock()
	acquires.running += batchesAtOnce
	return func() bool {
		acquires.mu.Lock()
		defer acquires.mu.Unlock()
		if len(acquires.waiting) < n {
			return false
		}
		acquires.running -= batchesAtOnce
		acquires.start()
		return true
	}
}

// SetAnswerLimit sets the time after which a query that was not answered gives up its connection.
func SetAnswerLimit(b *Backend, limit time.Duration) { b.pool.answerLimit = limit }

// SetIdle sets the time without waiters after which a backend stops to listen. It has no waiters yet.
func SetIdle(b *Backend, idle time.Duration) { b.listener.idle = idle }

// SetPause sets the time after which a backend listens again when it could not.
func SetPause(b *Backend, pause time.Duration) { b.listener.pause = pause }

// Running reports whether a backend listens, or tries to.
func Running(b *Backend) bool {
	b.listener.mu.Lock()
	defer b.listener.mu.Unlock()
	return b.listener.running
}

// Listening reports whether waiters of a backend rely on notifications.
func Listening(b *Backend) bool {
	_, listening := b.listener.channel()
	return listening
}

// Unanswered returns the number of attempts of a session that have a call without an answer.
func Unanswered(s engine.Session) (attempts int) {
	s.(*session).unanswered.Range(func(any, any) bool { attempts++; return true })
	return attempts
}
