package machine

import (
	"fmt"

	"github.com/leased-project/leased/lease"
)

// commandVersion is the first byte of every encoded batch. A machine refuses
// versions it does not know: guessing would make replicas differ. What version 1
// can say means the same in version 2.
const commandVersion = 2

// opsOfVersion is the last operation code of each version that is read.
var opsOfVersion = [commandVersion + 1]byte{1: opRaiseFloor, 2: opIncarnation}

// The operation codes of the log. They are never reused.
const (
	opLead byte = iota + 1
	opOpenSession
	opCloseSession
	opAcquire
	opRelease
	opExpire
	opBreak
	opEndDelay
	opSetPolicy
	opDeletePolicy
	opRaiseFloor
	opOpenNumbered
	opEndSessions
	opIncarnation // of the command that follows; those of incarnation 0 have none
)

// Encode writes commands as one entry of the log. They are applied in order.
func Encode(commands ...Command) []byte {
	return AppendEncoded(make([]byte, 0, 64*len(commands)+8), commands...)
}

// AppendEncoded appends what Encode returns to data.
func AppendEncoded(data []byte, commands ...Command) []byte {
	w := &writer{data: data}
	w.byte(commandVersion)
	w.int(len(commands))
	for _, c := range commands {
		c.encode(w)
	}
	return w.data
}

// Decode reads what Encode wrote, and checks every command. It never panics,
// and whatever it accepts encodes to the same bytes again, except for the first
// one if that says version 1: Encode writes the present version.
func Decode(data []byte) ([]Command, error) {
	r := &reader{data: data}
	version := r.byte()
	if r.err == nil && (version == 0 || version > commandVersion) {
		return nil, fmt.Errorf("%w: version %d, this program reads versions up to %d; upgrade it", ErrMalformed, version, commandVersion)
	}
	n := r.count()
	commands := make([]Command, 0, n)
	room := slab{left: n, ops: opsOfVersion[version]}
	for ; room.left > 0; room.left-- {
		c := decodeCommand(r, &room)
		if r.err != nil {
			return nil, r.err
		}
		if err := c.validate(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		commands = append(commands, c)
	}
	return commands, r.end()
}

// slab has room for the commands of which an entry has many: one allocation
// for a number of them. Nobody keeps a command after it was applied.
type slab struct {
	acquires []Acquire
	releases []Release
	left     int  // how many commands are still to come
	ops      byte // the last operation that may come
}

// slabSize bounds what is reserved for commands that may be of another kind.
const slabSize = 32

func (s *slab) acquire() *Acquire {
	if len(s.acquires) == 0 {
		s.acquires = make([]Acquire, min(s.left, slabSize))
	}
	c := &s.acquires[0]
	s.acquires = s.acquires[1:]
	return c
}

func (s *slab) release() *Release {
	if len(s.releases) == 0 {
		s.releases = make([]Release, min(s.left, slabSize))
	}
	c := &s.releases[0]
	s.releases = s.releases[1:]
	return c
}

func decodeCommand(r *reader, room *slab) Command {
	op := r.byte()
	if op > room.ops {
		r.fail("unknown operation %d", op)
		return nil
	}
	switch op {
	case opLead:
		return &Lead{}
	case opOpenSession, opOpenNumbered:
		return &OpenSession{Session: r.session(), TTL: r.dur(), Numbered: op == opOpenNumbered}
	case opIncarnation:
		incarnation := r.uint()
		if incarnation == 0 {
			r.fail("incarnation 0 is written out")
		}
		return decodeIncarnate(r, r.byte(), incarnation, room)
	case opCloseSession, opAcquire, opRelease, opExpire:
		return decodeIncarnate(r, op, 0, room)
	case opBreak:
		return &Break{Resource: r.resource(), Token: r.token()}
	case opEndDelay:
		return &EndDelay{Resource: r.resource(), Delay: r.uint(), Generation: r.uint()}
	case opSetPolicy:
		return &SetPolicy{Policy: r.policy(), Version: r.uint()}
	case opDeletePolicy:
		return &DeletePolicy{Prefix: r.text(), Version: r.uint()}
	case opRaiseFloor:
		return &RaiseFloor{By: r.token()}
	case opEndSessions:
		return &EndSessions{Above: r.uint()}
	default:
		r.fail("unknown operation %d", op)
		return nil
	}
}

// decodeIncarnate reads the commands that are about one incarnation of a
// session.
func decodeIncarnate(r *reader, op byte, incarnation uint64, room *slab) Command {
	switch op {
	case opCloseSession:
		return &CloseSession{Session: r.session(), Incarnation: incarnation}
	case opAcquire:
		c := room.acquire()
		c.Session, c.Incarnation, c.Request = r.session(), incarnation, r.request()
		return c
	case opRelease:
		c := room.release()
		c.Session, c.Incarnation, c.Nonce = r.session(), incarnation, lease.Nonce(r.uint())
		return c
	case opExpire:
		return &Expire{Session: r.session(), Incarnation: incarnation, Generation: r.uint()}
	default:
		r.fail("operation %d has no incarnation", op)
		return nil
	}
}

func (c *Lead) encode(w *writer) { w.byte(opLead) }

// incarnate writes an operation on one incarnation of a session.
func (w *writer) incarnate(op byte, incarnation uint64) {
	if incarnation != 0 {
		w.byte(opIncarnation)
		w.uint(incarnation)
	}
	w.byte(op)
}

func (c *OpenSession) encode(w *writer) {
	if c.Numbered {
		w.byte(opOpenNumbered)
	} else {
		w.byte(opOpenSession)
	}
	w.raw(c.Session[:])
	w.dur(c.TTL)
}

func (c *CloseSession) encode(w *writer) {
	w.incarnate(opCloseSession, c.Incarnation)
	w.raw(c.Session[:])
}

func (c *Acquire) encode(w *writer) {
	w.incarnate(opAcquire, c.Incarnation)
	w.raw(c.Session[:])
	w.request(&c.Request)
}

func (c *Release) encode(w *writer) {
	w.incarnate(opRelease, c.Incarnation)
	w.raw(c.Session[:])
	w.uint(uint64(c.Nonce))
}

func (c *Expire) encode(w *writer) {
	w.incarnate(opExpire, c.Incarnation)
	w.raw(c.Session[:])
	w.uint(c.Generation)
}

func (c *Break) encode(w *writer) {
	w.byte(opBreak)
	w.text(string(c.Resource))
	w.uint(uint64(c.Token))
}

func (c *EndDelay) encode(w *writer) {
	w.byte(opEndDelay)
	w.text(string(c.Resource))
	w.uint(c.Delay)
	w.uint(c.Generation)
}

func (c *SetPolicy) encode(w *writer) {
	w.byte(opSetPolicy)
	w.policy(c.Policy)
	w.uint(c.Version)
}

func (c *DeletePolicy) encode(w *writer) {
	w.byte(opDeletePolicy)
	w.text(c.Prefix)
	w.uint(c.Version)
}

func (c *RaiseFloor) encode(w *writer) {
	w.byte(opRaiseFloor)
	w.uint(uint64(c.By))
}

func (c *EndSessions) encode(w *writer) {
	w.byte(opEndSessions)
	w.uint(c.Above)
}

func (w *writer) request(q *lease.Request) {
	w.uint(uint64(q.Nonce))
	w.resources(q.Resources)
	w.byte(byte(q.Kind))
	w.int(q.Permits)
	w.byte(byte(q.Mode))
	w.bool(q.Wait)
	w.text(q.Holder)
	w.metadata(q.Metadata)
}

func (r *reader) request() lease.Request {
	return lease.Request{
		Nonce: lease.Nonce(r.uint()), Resources: r.resources(), Kind: lease.Kind(r.byte()), Permits: int(r.max(lease.MaxPermits)),
		Mode: lease.Mode(r.byte()), Wait: r.bool(), Holder: r.sameText(), Metadata: r.metadata(),
	}
}

func (w *writer) policy(p lease.Policy) {
	w.text(p.Prefix)
	w.byte(byte(p.Mode))
	w.dur(p.TTL)
	w.dur(p.Renew)
	w.dur(p.Drift)
	w.dur(p.LockDelay)
}

func (r *reader) policy() lease.Policy {
	return lease.Policy{Prefix: r.text(), Mode: lease.Mode(r.byte()), TTL: r.dur(), Renew: r.dur(), Drift: r.dur(), LockDelay: r.dur()}
}
