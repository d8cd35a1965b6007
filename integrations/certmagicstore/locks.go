package certmagicstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/certmagic"
	"golang.org/x/net/idna"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// lock is a lock from Lock to Unlock, even if its lease is lost in between. So what
// a job writes carries its own token, and not that of another job of the process.
type lock struct {
	lease   *lease.Lease // nil until it is acquired
	subject string       // the component of the keys that it guards, or "" for all keys
	free    chan struct{}
}

// Lock waits for the lock. Then it raises the mark, so that what an earlier holder writes
// from now on is refused.
func (s *Storage) Lock(ctx context.Context, name string) error {
	for {
		l, mine := s.claim(name)
		if mine {
			err := s.acquire(ctx, name, l, s.locks.Acquire)
			if err != nil {
				s.remove(name, l)
			}
			return err
		}
		select {
		case <-l.free:
		case <-ctx.Done():
			return fmt.Errorf("lock %q: %w", name, context.Cause(ctx))
		}
	}
}

// TryLock takes the lock if nobody has it.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	l, mine := s.claim(name)
	if !mine {
		return false, nil
	}
	err := s.acquire(ctx, name, l, s.locks.TryAcquire)
	if err != nil {
		s.remove(name, l)
	}
	if errors.Is(err, lease.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

// Unlock releases the lock. A lock that was lost counts as released.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	l, held := s.find(name)
	if held == nil || !s.remove(name, l) {
		return fmt.Errorf("unlock %q: %w", name, lease.ErrNotHeld)
	}
	if err := held.Release(ctx); err != nil && !errors.Is(err, lease.ErrLost) {
		return fmt.Errorf("unlock %q: %w", name, err)
	}
	return nil
}

// RenewLockLease returns nil while the lock is held: its lease is renewed in the background.
// If the lease was lost, RenewLockLease acquires the lock again with a new token, or fails if
// another server holds it. certmagic calls it at the start of each attempt to issue a
// certificate, before it reads anything, and retries for days. Without a new lease, every
// later attempt would be refused.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	l, held := s.find(name)
	if held == nil {
		return fmt.Errorf("renew the lock %q: %w", name, lease.ErrNotHeld)
	}
	if held.Err() == nil {
		return nil
	}
	if err := s.acquire(ctx, name, l, s.locks.TryAcquire); err != nil {
		return fmt.Errorf("take the lost lock again: %w", err)
	}
	return nil
}

// claim makes the caller the only one in this process that may take the lock. If another
// one has claimed it, claim returns the lock of the other one.
func (s *Storage) claim(name string) (l *lock, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.held[name]; l != nil {
		return l, false
	}
	l = &lock{subject: subject(name), free: make(chan struct{})}
	s.held[name] = l
	return l, true
}

// remove ends a claim, unless somebody has ended it already: at the end of a program,
// certmagic unlocks everything while jobs may still run.
func (s *Storage) remove(name string, l *lock) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[name] != l {
		return false
	}
	delete(s.held, name)
	close(l.free)
	return true
}

// find returns a lock and its lease, which is nil if it is not acquired.
func (s *Storage) find(name string) (*lock, *lease.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.held[name]
	if l == nil {
		return nil, nil
	}
	return l, l.lease
}

type acquirer func(context.Context, fencing.Resource, ...lease.AcquireOption) (*lease.Lease, error)

// acquire takes a lock that the caller has claimed.
func (s *Storage) acquire(ctx context.Context, name string, l *lock, acquire acquirer) error {
	held, err := s.take(ctx, name, acquire)
	if err != nil {
		return fmt.Errorf("lock %q: %w", name, err)
	}
	s.mu.Lock()
	claimed := s.held[name] == l
	if claimed {
		l.lease = held
	}
	s.mu.Unlock()
	if !claimed { // it was unlocked meanwhile
		return errors.Join(fmt.Errorf("lock %q: %w", name, lease.ErrReleased), held.Release(ctx))
	}
	return nil
}

// take acquires a lease and raises its mark.
func (s *Storage) take(ctx context.Context, name string, acquire acquirer) (*lease.Lease, error) {
	held, err := acquire(ctx, fencing.Resource(s.prefix+name), s.options...)
	if err != nil {
		return nil, err
	}
	if err := s.gate.Enter(ctx, held.GateResource(), held.Token()); err != nil {
		return nil, errors.Join(err, held.Release(ctx))
	}
	return held, nil
}

// guards returns the leases of the locks that guard a key, in the order of their names, so
// that two writes do not wait for each other.
func (s *Storage) guards(key string) []*lease.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	var leases []*lease.Lease
	for _, l := range s.held {
		if l.lease != nil && l.guards(key) {
			leases = append(leases, l.lease)
		}
	}
	slices.SortFunc(leases, func(a, b *lease.Lease) int {
		return strings.Compare(string(a.GateResource()), string(b.GateResource()))
	})
	return leases
}

// guards reports whether a write to the key must carry the token of the lock.
func (l *lock) guards(key string) bool {
	return l.subject == "" || slices.ContainsFunc(strings.Split(key, "/"), func(component string) bool {
		return component == l.subject || strings.HasPrefix(component, l.subject+".") // a file extension
	})
}

// subject returns a certificate's name as certmagic writes it into keys if the lock is
// the one to issue it, and "" for other locks.
func subject(lock string) string {
	name, ok := strings.CutPrefix(lock, "issue_cert_")
	if !ok {
		return ""
	}
	ascii, err := idna.ToASCII(name)
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(ascii); ip != nil {
		ascii = ip.String()
	}
	return certmagic.StorageKeys.Safe(ascii)
}
