package machine

import (
	"fmt"

	"github.com/leased-project/leased/lease/engine"
)

// commandVersion is the first byte of every encoded batch. A machine refuses unknown
// versions, because guessing would make replicas differ.
const commandVersion = 3

// The operation codes of the log.
const (
	opLead byte = iota + 1
	opOpenSession
	opCloseSession
	opAcquire
	opRelease
	opExpire
	opBreak
	opEndDelay
	opRaiseFloor
	opEndSessions
	opSetPolicy
	opDeletePolicy
	opAbortMigration
	opFinishMigration
	opSetFleet
	opFinishFleet
	opAssignRange
	opRaiseCeiling
	opReconcile
	opFinishReconcile
	opMarkRestored
	opSetMemberAPI
)

// Encode encodes commands as one log entry. They are applied in order.
func Encode(commands ...Command) []byte {
	return AppendEncoded(make([]byte, 0, 64*len(commands)+8), commands...)
}

// AppendEncoded appends the result of Encode to data.
func AppendEncoded(data []byte, commands ...Command) []byte {
	w := &writer{data: data}
	w.byte(commandVersion)
	w.int(len(commands))
	for _, c := range commands {
		c.encode(w)
	}
	return w.data
}

// Decode decodes the result of Encode and validates every command. It never panics, and
// everything that it accepts encodes to the same bytes again.
func Decode(data []byte) ([]Command, error) {
	r := &reader{data: data}
	if version := r.byte(); r.err == nil && version != commandVersion {
		return nil, fmt.Errorf("%w: entry version %d, this program reads version %d", ErrMalformed, version, commandVersion)
	}
	n := r.count()
	commands := make([]Command, 0, n)
	room := slab{left: n}
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

// slab allocates many frequent commands at once. No command is kept after it was
// applied.
type slab struct {
	acquires []Acquire
	releases []Release
	left     int // the number of commands left
}

// slabSize limits the allocation, because the commands may be of another kind.
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
	switch op := r.byte(); op {
	case opLead:
		return &Lead{}
	case opOpenSession:
		return &OpenSession{Session: r.session(), TTL: r.dur()}
	case opCloseSession:
		return &CloseSession{Session: r.session(), Incarnation: r.uint()}
	case opAcquire:
		c := room.acquire()
		c.Session, c.Incarnation, c.Request = r.session(), r.uint(), r.request()
		return c
	case opRelease:
		c := room.release()
		c.Session, c.Incarnation, c.Nonce = r.session(), r.uint(), engine.Nonce(r.uint())
		return c
	case opExpire:
		return &Expire{Session: r.session(), Incarnation: r.uint(), Generation: r.uint()}
	case opBreak:
		return &Break{Resource: r.resource(), Token: r.token()}
	case opEndDelay:
		return &EndDelay{Resource: r.resource(), Delay: r.uint(), Generation: r.uint()}
	case opRaiseFloor:
		return &RaiseFloor{By: r.token()}
	case opEndSessions:
		return &EndSessions{Above: r.uint()}
	default:
		return decodeTopologyCommand(r, op)
	}
}

func (c *Lead) encode(w *writer) { w.byte(opLead) }

func (c *OpenSession) encode(w *writer) {
	w.byte(opOpenSession)
	w.raw(c.Session[:])
	w.dur(c.TTL)
}

func (c *CloseSession) encode(w *writer) {
	w.byte(opCloseSession)
	w.raw(c.Session[:])
	w.uint(c.Incarnation)
}

func (c *Acquire) encode(w *writer) {
	w.byte(opAcquire)
	w.raw(c.Session[:])
	w.uint(c.Incarnation)
	w.request(&c.Request)
}

func (c *Release) encode(w *writer) {
	w.byte(opRelease)
	w.raw(c.Session[:])
	w.uint(c.Incarnation)
	w.uint(uint64(c.Nonce))
}

func (c *Expire) encode(w *writer) {
	w.byte(opExpire)
	w.raw(c.Session[:])
	w.uint(c.Incarnation)
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

func (c *RaiseFloor) encode(w *writer) {
	w.byte(opRaiseFloor)
	w.uint(uint64(c.By))
}

func (c *EndSessions) encode(w *writer) {
	w.byte(opEndSessions)
	w.uint(c.Above)
}

func (w *writer) request(q *engine.Request) {
	w.uint(uint64(q.Nonce))
	w.resources(q.Resources)
	w.byte(byte(q.Kind))
	w.int(q.Permits)
	w.byte(byte(q.Mode))
	w.bool(q.Wait)
	w.text(q.Holder)
	w.metadata(q.Metadata)
}

func (r *reader) request() engine.Request {
	return engine.Request{
		Nonce: engine.Nonce(r.uint()), Resources: r.resources(), Kind: engine.Kind(r.byte()), Permits: int(r.max(engine.MaxPermits)),
		Mode: engine.Mode(r.byte()), Wait: r.bool(), Holder: r.sameText(), Metadata: r.metadata(),
	}
}
