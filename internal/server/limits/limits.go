package limits

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// ErrConfig reports that Limits break a rule, which the error names.
var ErrConfig = errors.New("invalid limits")

// MaxMessage bounds one gRPC message. A message of a session stream combines many
// operations, each of which is bounded by Limits.RequestBytes.
const MaxMessage = 4 << 20

// Limits bounds what one request may contain, and what one user may use.
type Limits struct {
	// RequestBytes bounds a request: the body of an HTTP call, the message of a unary
	// gRPC call, and one operation of a session stream. A renewal of many leases in
	// efficiency mode may have RequestBytes for each lease. Files of snapshots are
	// not bounded.
	RequestBytes int
	// NameBytes bounds the name of a lock, MetadataBytes the keys and values of the
	// metadata of a request together, SetSize the locks of a set.
	NameBytes, MetadataBytes, SetSize int
	// Cluster holds in correctness mode, across all members. LeasesPerUser also bounds the leases of a user
	// in efficiency mode that one member has granted or renewed.
	Cluster machine.Limits
	// StreamsPerUser bounds the streams and watches of a user on one member.
	StreamsPerUser int
	// RequestsPerSecond bounds the requests of a user on one member. 0 means no bound.
	RequestsPerSecond int
	// Connections bounds the open connections to the API of one member.
	Connections int
	// TTLMin and TTLMax bound the TTL of a session or lease.
	TTLMin, TTLMax time.Duration
	// SendTimeout bounds the time for which a client does not read a message of a
	// stream or the next part of an answer, BodyTimeout the time until the body of an
	// HTTP call is read, IdleTimeout the time of a connection without calls.
	SendTimeout, BodyTimeout, IdleTimeout time.Duration
}

// Field is a limit that is a number.
type Field struct {
	Name, Usage          string
	Default, Least, Most int
	Of                   func(*Limits) *int
}

// Fields lists the limits that are numbers, by the names of their settings.
var Fields = []Field{
	{"limit-request-bytes", "largest request, and largest operation of a session stream", 64 << 10, 1 << 10, 1 << 20,
		func(l *Limits) *int { return &l.RequestBytes }},
	{"limit-name-bytes", "longest name of a lock", fencing.MaxResourceLen, 1, fencing.MaxResourceLen,
		func(l *Limits) *int { return &l.NameBytes }},
	{"limit-metadata-bytes", "largest metadata of a request", engine.MaxMetadataLen, 0, engine.MaxMetadataLen,
		func(l *Limits) *int { return &l.MetadataBytes }},
	{"limit-set-size", "largest number of locks in a set", engine.MaxResources, 1, engine.MaxResources,
		func(l *Limits) *int { return &l.SetSize }},
	{"limit-sessions-per-user", "open sessions of a user", 100_000, 1, maxNumber, func(l *Limits) *int {
		return &l.Cluster.SessionsPerUser
	}},
	{"limit-leases-per-user",
		"leases of a user: in correctness mode with its waiting requests, in efficiency mode through this member",
		1_000_000, 1, maxNumber, func(l *Limits) *int { return &l.Cluster.LeasesPerUser }},
	{"limit-waiters-per-user", "waiting requests of a user", 200_000, 1, maxNumber, func(l *Limits) *int {
		return &l.Cluster.WaitersPerUser
	}},
	{"limit-waiters-per-lock", "waiting requests for a lock in correctness mode", 20_000, 1, maxNumber,
		func(l *Limits) *int { return &l.Cluster.WaitersPerLock }},
	{"limit-streams-per-user", "streams and watches of a user on this member", 20_000, 1, maxNumber, func(l *Limits) *int {
		return &l.StreamsPerUser
	}},
	{"limit-requests-per-second", "requests a second of a user on this member; 0 means no limit", 0, 0, maxNumber,
		func(l *Limits) *int { return &l.RequestsPerSecond }},
	{"limit-connections", "open connections to the API of this member", 20_000, 1, maxNumber, func(l *Limits) *int {
		return &l.Connections
	}},
}

// maxNumber bounds the settings without another bound.
const maxNumber = 1 << 30

// The names of the settings that are durations.
const (
	TTLMinName = "limit-ttl-min"
	TTLMaxName = "limit-ttl-max"

	SendTimeoutName = "limit-send-timeout"
	BodyTimeoutName = "limit-body-timeout"
	IdleTimeoutName = "limit-idle-timeout"
)

// The defaults of the timeouts.
const (
	DefaultSendTimeout = 20 * time.Second
	DefaultBodyTimeout = 10 * time.Second
	DefaultIdleTimeout = 2 * time.Minute
)

// Default returns the default limits. They are generous, because without users all
// callers count as one user: a single client may hold 100,000 leases, and requests
// are not limited in rate.
func Default() Limits {
	l := Limits{TTLMin: engine.MinTTL, TTLMax: engine.MaxTTL, SendTimeout: DefaultSendTimeout,
		BodyTimeout: DefaultBodyTimeout, IdleTimeout: DefaultIdleTimeout}
	for i := range Fields {
		*Fields[i].Of(&l) = Fields[i].Default
	}
	return l
}

// Validate returns the first rule that the limits break.
func (l Limits) Validate() error {
	for i := range Fields {
		f := &Fields[i]
		if n := *f.Of(&l); n < f.Least || n > f.Most {
			return fmt.Errorf("%w: %s (%d) must be from %d to %d", ErrConfig, f.Name, n, f.Least, f.Most)
		}
	}
	timeouts := map[string]time.Duration{SendTimeoutName: l.SendTimeout, BodyTimeoutName: l.BodyTimeout,
		IdleTimeoutName: l.IdleTimeout}
	for _, name := range slices.Sorted(maps.Keys(timeouts)) {
		if timeouts[name] <= 0 {
			return fmt.Errorf("%w: %s (%v) must be above 0", ErrConfig, name, timeouts[name])
		}
	}
	switch {
	case l.TTLMin < engine.MinTTL:
		return fmt.Errorf("%w: %s (%v) must be at least %v", ErrConfig, TTLMinName, l.TTLMin, engine.MinTTL)
	case l.TTLMax > engine.MaxTTL:
		return fmt.Errorf("%w: %s (%v) must be at most %v", ErrConfig, TTLMaxName, l.TTLMax, engine.MaxTTL)
	case l.TTLMin > l.TTLMax:
		return fmt.Errorf("%w: %s (%v) must be at most %s (%v)", ErrConfig, TTLMinName, l.TTLMin, TTLMaxName, l.TTLMax)
	}
	return nil
}
