package machine

import (
	"fmt"
	"math"

	"github.com/leased-project/leased/lease/engine"
)

// CommandVersion is the first byte of every encoded batch: the version of its format. A
// change of an operation, or a new one, needs another version: see
// docs/adr/0030-frozen-formats.md.
const CommandVersion = 1

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
	opNameLife
	opRaiseCeiling
	opReconcile
	opFinishReconcile
	opMarkRestored
	opSetMemberAPI
	opCloseSets
	opFinishRecovery
	opEndRequests
	opUpdate
)

// commandOf returns an empty command for each operation code.
var commandOf = [...]func() Command{
	opLead: empty[Lead], opOpenSession: empty[OpenSession], opCloseSession: empty[CloseSession], opAcquire: empty[Acquire],
	opRelease: empty[Release], opExpire: empty[Expire], opBreak: empty[Break], opEndDelay: empty[EndDelay],
	opRaiseFloor: empty[RaiseFloor], opEndSessions: empty[EndSessions], opSetPolicy: empty[SetPolicy],
	opDeletePolicy: empty[DeletePolicy], opAbortMigration: empty[AbortMigration],
	opFinishMigration: empty[FinishMigration],
	opSetFleet:        empty[SetFleet], opFinishFleet: empty[FinishFleet], opNameLife: empty[NameLife],
	opRaiseCeiling: empty[RaiseCeiling], opReconcile: empty[Reconcile], opFinishReconcile: empty[FinishReconcile],
	opMarkRestored: empty[MarkRestored], opSetMemberAPI: empty[SetMemberAPI], opCloseSets: empty[CloseSets],
	opFinishRecovery: empty[FinishRecovery], opEndRequests: empty[EndRequests], opUpdate: empty[Update],
}

func empty[T any, C interface {
	*T
	Command
}]() Command {
	return C(new(T))
}

// Encode encodes commands as one log entry. They are applied in order.
func Encode(commands ...Command) []byte {
	return AppendEncoded(make([]byte, 0, 64*len(commands)+8), commands...)
}

// AppendEncoded appends the result of Encode to data.
func AppendEncoded(data []byte, commands ...Command) []byte {
	c := &codec{data: data}
	c.version("batch of commands", CommandVersion)
	c.count(len(commands))
	for _, command := range commands {
		command.code(c)
	}
	return c.data
}

// Decode decodes the result of Encode and validates every command. It never panics, and
// everything that it accepts encodes to the same bytes again. The error matches
// ErrMalformed, or is an *engine.FormatError if a newer build has encoded the commands.
func Decode(data []byte) ([]Command, error) {
	c := &codec{data: data, reading: true}
	c.version("batch of commands", CommandVersion)
	n := c.count(0)
	commands := make([]Command, 0, n)
	for range n {
		command, err := decodeCommand(c)
		if err != nil {
			return nil, err
		}
		commands = append(commands, command)
	}
	return commands, c.end()
}

func decodeCommand(c *codec) (Command, error) {
	var op uint8
	if number(c, &op, math.MaxUint8); op == 0 || int(op) >= len(commandOf) {
		c.fail("unknown operation %d", op)
		return nil, c.err
	}
	command := commandOf[op]()
	if command.code(c); c.err != nil {
		return nil, c.err
	}
	if err := command.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return command, nil
}

// command codes the fields of a command. A reader has read the operation code already.
func (c *codec) command(op uint8, fields ...any) {
	if !c.reading {
		c.data = append(c.data, op)
	}
	c.fields(fields...)
}

func (c *codec) limits(values ...*int) {
	for _, v := range values {
		number(c, v, math.MaxInt32)
	}
}

func (c *codec) request(q *engine.Request) {
	c.fields(&q.Nonce, &q.Resources, &q.Kind, &q.Permits, &q.Mode, &q.Wait)
	c.sharedText(&q.Holder)
	c.fields(&q.Metadata)
}

func (c *Acquire) code(data *codec) {
	data.command(opAcquire, &c.Session, &c.Incarnation)
	data.request(&c.Request)
	data.limits(&c.Limits.LeasesPerUser, &c.Limits.WaitersPerUser, &c.Limits.WaitersPerLock)
}

func (c *OpenSession) code(data *codec) {
	data.command(opOpenSession, &c.Session, &c.TTL, &c.User)
	data.limits(&c.Limits.SessionsPerUser)
}

func (c *Update) code(data *codec) {
	data.command(opUpdate, &c.Session, &c.Incarnation, &c.TTL, &c.Nonce, &c.Metadata)
}

func (c *Lead) code(data *codec)           { data.command(opLead) }
func (c *CloseSession) code(data *codec)   { data.command(opCloseSession, &c.Session, &c.Incarnation) }
func (c *Release) code(data *codec)        { data.command(opRelease, &c.Session, &c.Incarnation, &c.Nonce) }
func (c *Expire) code(data *codec)         { data.command(opExpire, &c.Session, &c.Incarnation, &c.Generation) }
func (c *Break) code(data *codec)          { data.command(opBreak, &c.Resource, &c.Token) }
func (c *EndDelay) code(data *codec)       { data.command(opEndDelay, &c.Resource, &c.Delay, &c.Generation) }
func (c *RaiseFloor) code(data *codec)     { data.command(opRaiseFloor, &c.By) }
func (c *EndSessions) code(data *codec)    { data.command(opEndSessions, &c.Above) }
func (c *SetPolicy) code(data *codec)      { data.command(opSetPolicy, &c.Policy, &c.Version, &c.Now) }
func (c *DeletePolicy) code(data *codec)   { data.command(opDeletePolicy, &c.Prefix, &c.Version, &c.Now) }
func (c *AbortMigration) code(data *codec) { data.command(opAbortMigration, &c.Prefix) }
func (c *FinishMigration) code(data *codec) {
	data.command(opFinishMigration, &c.Prefix, &c.Version, &c.Granted)
}
func (c *SetFleet) code(data *codec) {
	data.command(opSetFleet, &c.Fleet, &c.Version, &c.Now, &c.Force)
}
func (c *FinishFleet) code(data *codec)    { data.command(opFinishFleet, &c.Version) }
func (c *NameLife) code(data *codec)       { data.command(opNameLife, &c.Member, &c.Life, &c.Version) }
func (c *FinishRecovery) code(data *codec) { data.command(opFinishRecovery, &c.Member, &c.Life) }
func (c *CloseSets) code(data *codec)      { data.command(opCloseSets, &c.Version, &c.Granted) }
func (c *RaiseCeiling) code(data *codec)   { data.command(opRaiseCeiling, &c.To) }
func (c *Reconcile) code(data *codec) {
	data.command(opReconcile, &c.At, &c.Version, &c.Ceiling, &c.Lives, &c.Past)
}
func (c *FinishReconcile) code(data *codec) { data.command(opFinishReconcile, &c.Version) }
func (c *MarkRestored) code(data *codec) {
	data.command(opMarkRestored, &c.Version, &c.Ceiling, &c.Fleet, &c.FleetSet, &c.FleetUnused)
}
func (c *SetMemberAPI) code(data *codec) { data.command(opSetMemberAPI, &c.ID, &c.Address) }

func (c *EndRequests) code(data *codec) {
	data.command(opEndRequests)
	data.limits(&c.Max)
}
