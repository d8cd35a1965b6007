package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/leased-project/leased/lease/engine"
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

// Backend is a engine.Backend over the API of a cluster, for locks in correctness
// mode. Efficiency returns one for locks in efficiency mode. All methods may be
// called concurrently. Close it when done.
type Backend struct {
	settings
	leader     *uplink
	topology   *topologyWatch
	efficiency *Efficiency
}

// settings are how members are reached.
type settings struct {
	endpoints []string
	patience  time.Duration
	dial      []grpc.DialOption
	tls       *tls.Config // nil for none
	secret    string      // empty for none
	clock     engine.Clock
}

var (
	_ engine.Backend        = (*Backend)(nil)
	_ engine.TopologySource = (*Backend)(nil)
)

// Option changes a Backend.
type Option func(*Backend) error

// WithTLS makes connections secure. The configuration is used as it is.
func WithTLS(config *tls.Config) Option {
	return func(b *Backend) error {
		if config == nil {
			return fmt.Errorf("%w: the TLS configuration is nil", engine.ErrInvalid)
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
			return fmt.Errorf("%w: %w", engine.ErrInvalid, err)
		}
		b.secret = text
		return nil
	}
}

// WithPatience sets how long a leader is looked for.
func WithPatience(d time.Duration) Option {
	return func(b *Backend) error {
		if d <= 0 {
			return fmt.Errorf("%w: patience (%v) must be above 0", engine.ErrInvalid, d)
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
		return nil, fmt.Errorf("%w: there are no endpoints; give the address of a member, as \"127.0.0.1:7420\"", engine.ErrInvalid)
	}
	b := &Backend{settings: settings{endpoints: slices.Clone(endpoints), patience: DefaultPatience, clock: engine.MonotonicClock()}}
	for _, option := range options {
		if err := option(b); err != nil {
			return nil, err
		}
	}
	for _, address := range endpoints {
		if err := secret.CheckAddress(address, b.tls, b.secret); err != nil {
			return nil, fmt.Errorf("%w: %w", engine.ErrInvalid, err)
		}
	}
	b.leader = newUplink(&b.settings, 0)
	b.efficiency = &Efficiency{settings: &b.settings, uplink: newUplink(&b.settings, rand.N(len(endpoints)))}
	b.topology = newTopologyWatch(&b.settings)
	return b, nil
}

// Close ends the connections. Sessions go on until their time has run out.
func (b *Backend) Close() error {
	b.topology.close()
	b.leader.close()
	b.efficiency.uplink.close()
	return nil
}

// Efficiency returns the way to locks in efficiency mode through any member.
func (b *Backend) Efficiency() *Efficiency { return b.efficiency }

var errClosed = fmt.Errorf("%w: the backend is closed", engine.ErrUnavailable)

// do runs call on a link to the leader, and again on the next one while it fails
// for want of a leader. call may be repeated: it has one effect. Once an outcome
// was uncertain it stays so, until a later call has found out. A member that does
// not know the caller may not have read its users again yet: the others are asked
// too, see refusals.
func (b *Backend) do(ctx context.Context, call func(l *link) error) error {
	var uncertain, answered error // answered: that a member does not lead
	refused := refusals{by: map[string]bool{}}
	budget := b.patience
	for n := 0; ; n++ {
		began := b.clock.Now()
		l, err := b.leader.connect(ctx)
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
		case errors.Is(err, engine.ErrUncertain):
			uncertain = err
		case errors.As(err, &not):
			answered = err
			refused.told(not.Leader)
			b.leader.retire(l, not.Leader, err)
		case errors.Is(err, wire.ErrUnauthenticated):
			again = again && l != nil && refused.goOn(l.address, len(b.endpoints))
			if l != nil {
				b.leader.retire(l, "", err)
			}
		case errors.Is(err, engine.ErrUnavailable):
		default:
			again = false
		}
		if took := b.clock.Now().Since(began); took > b.patience {
			budget, n, answered = b.patience, 0, nil // it had been served well until now
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
		if l == nil && answered != nil && ctx.Err() == nil && !errors.Is(err, errClosed) {
			err = answered // that another member is down does not hide it
		}
		if uncertain != nil && !errors.Is(err, engine.ErrUncertain) && !certain(err) {
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
	for _, sentinel := range []error{engine.ErrHeld, engine.ErrLost, engine.ErrModeMismatch, engine.ErrUnsupported, engine.ErrInvalid} {
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
