package limits

import (
	"context"
	"fmt"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// Accounts counts what each user uses of this member.
type Accounts struct {
	Limits

	clock  engine.Clock
	byUser sync.Map // of *Account, by the name of the user
}

// NewAccounts returns empty accounts.
func NewAccounts(l Limits, clock engine.Clock) *Accounts { return &Accounts{Limits: l, clock: clock} }

// Of returns the account of the user of a call. There is at most one for each user, and
// one for all callers without users, so accounts are never deleted.
func (a *Accounts) Of(ctx context.Context) *Account {
	user := auth.UserName(ctx)
	if found, ok := a.byUser.Load(user); ok {
		return found.(*Account)
	}
	found, _ := a.byUser.LoadOrStore(user, &Account{limits: &a.Limits, clock: a.clock, user: user})
	return found.(*Account)
}

// Account is what one user uses of this member.
type Account struct {
	limits           *Limits
	clock            engine.Clock
	user             string
	streams, waiters atomic.Int64

	mu     sync.Mutex
	saved  float64 // requests that the user may make at once; negative after Keep
	filled engine.Instant

	leasesMu sync.Mutex
	leases   map[string]engine.Instant // in efficiency mode, granted or renewed here: their deadlines, by name
	swept    int                       // the number of leases after the last sweep
}

// name describes the user in errors.
func (a *Account) name() string {
	if a.user == "" {
		return "all callers together"
	}
	return "user " + a.user
}

// OpenStream counts a stream until done is called.
func (a *Account) OpenStream() (done func(), err error) {
	return a.count(&a.streams, a.limits.StreamsPerUser, "streams", "limit-streams-per-user")
}

// Wait counts a request that may wait for a lock until done is called.
func (a *Account) Wait() (done func(), err error) {
	return a.count(&a.waiters, a.limits.Cluster.WaitersPerUser, "waiting requests", "limit-waiters-per-user")
}

func (a *Account) count(n *atomic.Int64, most int, what, setting string) (done func(), err error) {
	if n.Add(1) > int64(most) {
		n.Add(-1)
		return nil, fmt.Errorf("%w: %s: %d %s on this member, as many as %s allows", engine.ErrLimit, a.name(), most, what,
			setting)
	}
	return func() { n.Add(-1) }, nil
}

// CheckLeases refuses a user who may not have another lease in efficiency mode.
func (a *Account) CheckLeases() error {
	a.leasesMu.Lock()
	defer a.leasesMu.Unlock()
	return a.leasesBelow(a.limits.Cluster.LeasesPerUser)
}

// Granted counts a lease in efficiency mode, or refuses it if others were granted since CheckLeases. The
// caller must release it then.
func (a *Account) Granted(name string, ttl time.Duration) error {
	a.Renewed(name, ttl)
	a.leasesMu.Lock()
	defer a.leasesMu.Unlock()
	err := a.leasesBelow(a.limits.Cluster.LeasesPerUser + 1)
	if err != nil {
		delete(a.leases, name)
	}
	return err
}

// Renewed counts a lease in efficiency mode until its new deadline. It may have been granted elsewhere.
func (a *Account) Renewed(name string, ttl time.Duration) {
	a.leasesMu.Lock()
	defer a.leasesMu.Unlock()
	if a.leases == nil {
		a.leases = map[string]engine.Instant{}
	}
	a.leases[name] = a.clock.Now().Add(ttl)
	if len(a.leases) > 2*a.swept+minSwept {
		a.sweep()
	}
}

// Released ends the count of a lease.
func (a *Account) Released(name string) {
	a.leasesMu.Lock()
	defer a.leasesMu.Unlock()
	delete(a.leases, name)
}

// minSwept is the number of leases below which expired ones are not looked for.
const minSwept = 1000

// sweep forgets expired leases. The caller holds leasesMu.
func (a *Account) sweep() {
	now := a.clock.Now()
	maps.DeleteFunc(a.leases, func(_ string, deadline engine.Instant) bool { return now.Until(deadline) <= 0 })
	a.swept = len(a.leases)
}

// leasesBelow returns an error unless the user has fewer leases. The caller holds leasesMu.
func (a *Account) leasesBelow(most int) error {
	if len(a.leases) >= most {
		a.sweep()
	}
	if len(a.leases) < most {
		return nil
	}
	return fmt.Errorf("%w: %s: %d leases in efficiency mode on this member, as many as %s allows", engine.ErrLimit,
		a.name(), a.limits.Cluster.LeasesPerUser, machine.LeasesPerUserName)
}

// RateError reports that a user makes too many requests. It matches engine.ErrLimit.
type RateError struct {
	User  string
	Rate  int           // the allowed requests a second
	After time.Duration // when the next request is allowed
}

// Error names the limit.
func (e *RateError) Error() string {
	return fmt.Sprintf("%v: %s: more than %d requests a second on this member, the value of "+
		"limit-requests-per-second; try again in %v",
		engine.ErrLimit, e.User, e.Rate, e.After.Round(time.Millisecond))
}

// Is makes errors.Is match engine.ErrLimit.
func (e *RateError) Is(target error) bool { return target == engine.ErrLimit }

// RetryAfter returns when the next request is allowed.
func (e *RateError) RetryAfter() time.Duration { return e.After }

// Request counts a request against the rate.
func (a *Account) Request() error { return a.request(0) }

// Keep counts a request that keeps or ends what the user has: a renewal, a release or
// a close, or the stream and the attach that a client needs for these. It is allowed up to twice the rate,
// so that a user whose acquires exhaust the rate does not lose its leases.
func (a *Account) Keep() error { return a.request(-float64(a.limits.RequestsPerSecond)) }

// request is a token bucket that holds the requests of one second. It takes one unless
// fewer than least would be left.
func (a *Account) request(least float64) error {
	rate := float64(a.limits.RequestsPerSecond)
	if rate == 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	if a.filled.IsZero() {
		a.saved = rate
	} else {
		a.saved = min(rate, a.saved+now.Since(a.filled).Seconds()*rate)
	}
	a.filled = now
	if a.saved-1 < least {
		wait := time.Duration(math.Ceil((least + 1 - a.saved) / rate * float64(time.Second)))
		return &RateError{User: a.name(), Rate: a.limits.RequestsPerSecond, After: wait}
	}
	a.saved--
	return nil
}
