package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/secret"
	"github.com/leased-project/leased/lease/remote/wire"
)

const (
	// DefaultPatience is how long a Backend tries to reach a leader before it
	// says that there is none: a few elections.
	DefaultPatience = 5 * time.Second
	// connectTime bounds one try to connect.
	connectTime = 2 * time.Second
	// The pause before the next member is tried.
	minPause = 5 * time.Millisecond
	maxPause = 100 * time.Millisecond
)

// Backend is a lease.Backend over the API of a cluster. All methods may be called
// concurrently. Close it when done.
type Backend struct {
	endpoints []string
	patience  time.Duration
	dial      []grpc.DialOption
	tls       *tls.Config // nil for none
	secret    string      // empty for none
	clock     lease.Clock

	connecting chan struct{} // held while the link is being made

	mu     sync.Mutex
	closed bool
	link   *link
	leader string // where to connect next, empty for the next endpoint
	next   int    // of endpoints
}

var _ lease.Backend = (*Backend)(nil)

// Option changes a Backend.
type Option func(*Backend) error

// WithTLS makes connections secure. The configuration is used as it is.
func WithTLS(config *tls.Config) Option {
	return func(b *Backend) error {
		if config == nil {
			return fmt.Errorf("%w: the TLS configuration is nil", lease.ErrInvalid)
		}
		b.tls = config
		return nil
	}
}

// WithSecret shows a secret of `leased user add` with each call, where the
// service has users. It is sent over TLS, or to a loopback address, and nowhere
// else.
func WithSecret(text string) Option {
	return func(b *Backend) error {
		if err := secret.Check(text); err != nil {
			return fmt.Errorf("%w: %w", lease.ErrInvalid, err)
		}
		b.secret = text
		return nil
	}
}

// WithPatience sets how long a leader is looked for.
func WithPatience(d time.Duration) Option {
	return func(b *Backend) error {
		if d <= 0 {
			return fmt.Errorf("%w: patience (%v) must be above 0", lease.ErrInvalid, d)
		}
		b.patience = d
		return nil
	}
}

// WithDialOptions adds options of gRPC.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(b *Backend) error {
		b.dial = append(b.dial, options...)
		return nil
	}
}

// New returns a Backend on the APIs at these addresses, as "10.0.0.1:7420". One is
// enough; more are asked when it is down. It connects when it is first used.
func New(endpoints []string, options ...Option) (*Backend, error) {
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("%w: there are no endpoints; give the address of a member, as \"127.0.0.1:7420\"", lease.ErrInvalid)
	}
	b := &Backend{endpoints: endpoints, patience: DefaultPatience, clock: lease.MonotonicClock(),
		connecting: make(chan struct{}, 1)}
	for _, option := range options {
		if err := option(b); err != nil {
			return nil, err
		}
	}
	for _, address := range endpoints {
		if err := secret.CheckAddress(address, b.tls, b.secret); err != nil {
			return nil, fmt.Errorf("%w: %w", lease.ErrInvalid, err)
		}
	}
	return b, nil
}

// Close ends the connection. Sessions go on until their time has run out.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	l := b.link
	b.mu.Unlock()
	if l != nil {
		l.close(errClosed)
	}
	return nil
}

var errClosed = fmt.Errorf("%w: the backend is closed", lease.ErrUnavailable)

// connect is the link in use, or a new one.
func (b *Backend) connect(ctx context.Context) (*link, error) {
	if l, err := b.current(); l != nil || err != nil {
		return l, err
	}
	select {
	case b.connecting <- struct{}{}:
		defer func() { <-b.connecting }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if l, err := b.current(); l != nil || err != nil {
		return l, err
	}
	b.mu.Lock()
	address := b.leader
	if b.leader = ""; address == "" {
		address = b.endpoints[b.next%len(b.endpoints)]
		b.next++
	}
	b.mu.Unlock()
	if err := secret.CheckAddress(address, b.tls, b.secret); err != nil { // a member has named it
		return nil, err
	}
	l, err := openLink(ctx, b, address)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", lease.ErrUnavailable, address, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		l.close(errClosed)
		return nil, errClosed
	}
	b.link = l
	return l, nil
}

// current is the link in use, nil if there is none.
func (b *Backend) current() (*link, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return nil, errClosed
	case b.link == nil || b.link.isDown():
		return nil, nil
	}
	return b.link, nil
}

// retire ends a link. leader is where to connect next, empty if not known.
func (b *Backend) retire(l *link, leader string, why error) {
	b.mu.Lock()
	if b.link == l {
		b.link = nil
		b.leader = leader
	}
	b.mu.Unlock()
	l.close(why)
}

// do runs call on a link to the leader, and again on the next one while it fails
// for want of a leader. call may be repeated: it has one effect. Once an outcome
// was uncertain it stays so, until a later call has found out. A member that does
// not know the caller may not have read its users again yet: the others are asked
// too, see refusals.
func (b *Backend) do(ctx context.Context, call func(l *link) error) error {
	var uncertain error
	refused := refusals{by: map[string]bool{}}
	budget := b.patience
	for n := 0; ; n++ {
		began := b.clock.Now()
		l, err := b.connect(ctx)
		if err == nil {
			err = call(l)
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
			err = fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		}
		again := ctx.Err() == nil && !errors.Is(err, errClosed)
		var not *wire.NotLeaderError
		switch {
		case errors.Is(err, lease.ErrUncertain):
			uncertain = err
		case errors.As(err, &not):
			refused.told(not.Leader)
			b.retire(l, not.Leader, err)
		case errors.Is(err, wire.ErrUnauthenticated):
			again = again && l != nil && refused.goOn(l.address, len(b.endpoints))
			if l != nil {
				b.retire(l, "", err)
			}
		case errors.Is(err, lease.ErrUnavailable):
		default:
			again = false
		}
		if took := b.clock.Now().Since(began); took > b.patience {
			budget, n = b.patience, 0 // it had been served well until now
		} else {
			budget -= took
		}
		if again && budget > 0 {
			pause := min(minPause<<min(n, 10), maxPause)
			budget -= pause
			if sleep(ctx, pause) == nil {
				continue
			}
			err = fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		}
		if uncertain != nil && !errors.Is(err, lease.ErrUncertain) && !certain(err) {
			err = fmt.Errorf("%w, then %w", uncertain, err)
		}
		return err
	}
}

// refusals are the members that do not know the caller. It is over when all have
// refused, or one again, and nobody has named another one to ask meanwhile or said
// that a leader is being elected.
type refusals struct {
	by   map[string]bool
	hope bool
}

// told notes which leader a member has named, if any.
func (r *refusals) told(leader string) { r.hope = r.hope || !r.by[leader] }

// goOn notes a refusal, and reports whether there is someone else to ask.
func (r *refusals) goOn(address string, endpoints int) bool {
	hope := r.hope
	if r.hope = false; r.by[address] {
		return hope
	}
	r.by[address] = true
	return len(r.by) < endpoints
}

// certain reports whether err is an answer of the service that settles what
// happened, also to earlier copies of the call.
func certain(err error) bool {
	for _, sentinel := range []error{lease.ErrHeld, lease.ErrLost, lease.ErrModeMismatch, lease.ErrUnsupported, lease.ErrInvalid} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Inspect tells who holds a lock and who waits for it.
func (b *Backend) Inspect(ctx context.Context, resource fencing.Resource) (status lease.Status, err error) {
	err = b.unary(ctx, func(ctx context.Context, c *link) error {
		response, err := c.leases.Inspect(ctx, &pb.InspectRequest{Resource: string(resource)})
		if err != nil {
			return err
		}
		status, err = wire.ToStatusOf(response.Lock)
		return err
	})
	return status, err
}

// Break takes a lease away from its holder. If an earlier copy of the call may
// have arrived, that the token is held no more is what was wanted.
func (b *Backend) Break(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	uncertain := false
	return b.unary(ctx, func(ctx context.Context, c *link) error {
		_, err := c.leases.Break(ctx, &pb.BreakRequest{Resource: string(resource), Token: uint64(token)})
		why := wire.FromStatus(err)
		if uncertain && errors.Is(why, lease.ErrNotHeld) {
			return nil
		}
		uncertain = uncertain || errors.Is(why, lease.ErrUncertain)
		return err
	})
}

// unary makes a call outside of the stream. One that is not answered within the
// patience is given up, and with it the link.
func (b *Backend) unary(ctx context.Context, call func(ctx context.Context, l *link) error) error {
	return b.do(ctx, func(l *link) error {
		limited, cancel := context.WithTimeout(ctx, b.patience)
		defer cancel()
		err := wire.FromStatus(call(limited, l))
		if limited.Err() != nil && ctx.Err() == nil {
			b.retire(l, "", err)
			return fmt.Errorf("%w: %s does not answer", lease.ErrUncertain, l.address)
		}
		return err
	})
}
