package wire

import (
	"fmt"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// ModeText returns the text of a mode, empty for AnyMode.
func ModeText(m engine.Mode) string {
	if m == engine.AnyMode {
		return ""
	}
	return m.String()
}

// ParseMode parses the text of ModeText.
func ParseMode(s string) (mode engine.Mode, err error) {
	if s == "" {
		return engine.AnyMode, nil
	}
	return engine.ParseMode(s)
}

// DurationText returns a duration in the format of the API; 0 is empty.
func DurationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// ParseDuration parses a duration in the format of the API. field is its name in the
// error.
func ParseDuration(field, s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%w: %s %q, use a duration such as \"10s\", \"1m30s\" or \"500ms\"", engine.ErrInvalid, field, s)
	}
	return d, nil
}

// ParsePositive parses a duration that has a default. The empty text means the default;
// 0 is refused, because a caller may mean something else by it.
func ParsePositive(field, s string) (time.Duration, error) {
	d, err := ParseDuration(field, s)
	if err == nil && d == 0 && s != "" {
		err = fmt.Errorf("%w: %s (%s) must be above 0; leave it empty for the default", engine.ErrInvalid, field, s)
	}
	return d, err
}

// Resources returns names as resources, sorted and without duplicates, as a Request
// requires.
func Resources(names ...string) []fencing.Resource {
	resources := make([]fencing.Resource, len(names))
	for i, name := range names {
		resources[i] = fencing.Resource(name)
	}
	return engine.SortedSet(resources)
}

// names returns resources as strings.
func names(resources []fencing.Resource) []string {
	list := make([]string, len(resources))
	for i, r := range resources {
		list[i] = string(r)
	}
	return list
}

// ToRequest converts a message of the stream to a request. It does not validate it.
func ToRequest(c *pb.AcquireCall) (engine.Request, error) {
	mode, err := ParseMode(c.Mode)
	if err != nil {
		return engine.Request{}, err
	}
	kind, err := leaseKind(c.Shared, c.Permits)
	return engine.Request{Nonce: engine.Nonce(c.Nonce), Resources: Resources(c.Resources...), Kind: kind,
		Permits: int(c.Permits),
		Mode:    mode, Wait: c.Wait, Holder: c.Holder, Metadata: c.Metadata}, err
}

// leaseKind returns the kind of lease that the fields of an acquire request ask for.
func leaseKind(shared bool, permits int32) (engine.Kind, error) {
	switch {
	case shared && permits != 0:
		return 0, fmt.Errorf("%w: shared and permits exclude each other", engine.ErrInvalid)
	case shared:
		return engine.Shared, nil
	case permits != 0:
		return engine.Permit, nil
	}
	return engine.Exclusive, nil
}

// FromStatusOf converts the status of a lock to a message. now is the time by which the
// ages of its parties are measured.
func FromStatusOf(s engine.Status, now time.Time) *pb.Lock {
	lock := &pb.Lock{Resource: string(s.Resource), Mode: ModeText(s.Mode), Delayed: s.Delayed,
		Permits: int32(s.Permits)}
	for i := range s.Holders {
		lock.Holders = append(lock.Holders, FromParty(&s.Holders[i], now))
	}
	for i := range s.Waiters {
		lock.Waiters = append(lock.Waiters, FromParty(&s.Waiters[i], now))
	}
	return lock
}

// FromParty converts a holder or waiter to a message. Its age is the time from Since to
// now.
func FromParty(p *engine.Party, now time.Time) *pb.Party {
	party := &pb.Party{Holder: p.Holder, User: p.User, Nonce: uint64(p.Nonce), Kind: p.Kind.String(), Slot: int32(p.Slot),
		Token: uint64(p.Token), Metadata: p.Metadata, TtlLeft: DurationText(p.TTL),
		Renewed: DurationText(p.Renewed), Client: p.Client}
	if p.Session != (engine.SessionID{}) {
		party.SessionId = p.Session.String()
	}
	if !p.Since.IsZero() {
		party.Since = p.Since.UTC().Format(time.RFC3339Nano)
		party.Age = max(0, now.Sub(p.Since)).Truncate(time.Millisecond).String()
	}
	return party
}

// ToStatusOf converts a message to the status of a lock.
func ToStatusOf(lock *pb.Lock) (engine.Status, error) {
	mode, err := ParseMode(lock.GetMode())
	if err != nil {
		return engine.Status{}, err
	}
	s := engine.Status{Resource: fencing.Resource(lock.GetResource()), Mode: mode, Delayed: lock.GetDelayed(),
		Permits: int(lock.GetPermits())}
	if s.Holders, err = toParties(lock.GetHolders()); err != nil {
		return engine.Status{}, err
	}
	s.Waiters, err = toParties(lock.GetWaiters())
	return s, err
}

// toParties converts messages to holders or waiters.
func toParties(list []*pb.Party) ([]engine.Party, error) {
	var parties []engine.Party
	for _, p := range list {
		var id engine.SessionID
		var err error
		if p.SessionId != "" { // it is shown to its owner only
			if id, err = engine.ParseSessionID(p.SessionId); err != nil {
				return nil, err
			}
		}
		left, err := ParseDuration("ttlLeft", p.TtlLeft)
		if err != nil {
			return nil, err
		}
		renewed, err := ParseDuration("renewed", p.Renewed)
		if err != nil {
			return nil, err
		}
		var since time.Time
		if p.Since != "" {
			since, err = time.Parse(time.RFC3339Nano, p.Since)
			if year := since.UTC().Year(); err != nil || year < 1 || year > 9999 { // such a year has no text
				return nil, fmt.Errorf("%w: since %q is not an RFC 3339 time", engine.ErrInvalid, p.Since)
			}
		}
		party := engine.Party{Holder: p.Holder, User: p.User, Session: id, Nonce: engine.Nonce(p.Nonce), Slot: int(p.Slot),
			Token:    fencing.Token(p.Token),
			Metadata: p.Metadata, TTL: left, Since: since.UTC(), Renewed: renewed, Client: p.Client}
		for _, k := range []engine.Kind{engine.Shared, engine.Permit} {
			if p.Kind == k.String() {
				party.Kind = k
			}
		}
		parties = append(parties, party)
	}
	return parties, nil
}

// FromHeld converts a lease in efficiency mode to a message. The Operation carries its
// session.
func FromHeld(h engine.Held) *pb.HeldLease {
	return &pb.HeldLease{Nonce: uint64(h.Nonce), Name: h.Name, Resources: names(h.Resources), Token: uint64(h.Token),
		TtlNanos: int64(h.TTL), Holder: h.Holder, Metadata: h.Metadata}
}

// ToHeld converts a message to a lease in efficiency mode.
func ToHeld(session engine.SessionID, m *pb.HeldLease) engine.Held {
	return engine.Held{Session: session, Nonce: engine.Nonce(m.GetNonce()), Name: m.GetName(),
		Resources: Resources(m.GetResources()...),
		Token:     fencing.Token(m.GetToken()), TTL: time.Duration(m.GetTtlNanos()), Holder: m.GetHolder(),
		Metadata: m.GetMetadata()}
}
