package audit

import (
	"context"
	"strings"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// Caller is where a call comes from. A context carries it from the moment the call arrives,
// so a refusal is recorded with the same fields as an event.
type Caller struct {
	// Address is the address of the caller's connection.
	Address string
	// Via is the address of the member that forwarded the call, or "". Address is
	// then what that member reported.
	Via string
	// User is the name that the caller was authenticated as, or "".
	User string
	// Program is the name that the caller's program gives itself (the header User-Agent), or "".
	Program string
}

// callerKey is the key of the Caller in a context.
type callerKey struct{}

// WithCaller returns a context that carries a caller.
func WithCaller(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// AddressOf returns the address of the caller of ctx, empty if it is unknown.
func AddressOf(ctx context.Context) string {
	if c, ok := ctx.Value(callerKey{}).(*Caller); ok {
		return c.Address
	}
	return ""
}

// ClientOf returns the address and the program of the caller of ctx, for people.
func ClientOf(ctx context.Context) string {
	c, ok := ctx.Value(callerKey{}).(*Caller)
	if !ok {
		return ""
	}
	return strings.TrimSpace(c.Address + " " + strings.ToValidUTF8(c.Program[:min(maxProgram, len(c.Program))], ""))
}

// maxProgram bounds the name of a program, which the leader keeps for each session.
const maxProgram = 64

// Refused records the error of a call if it refuses the caller, and nothing
// otherwise.
func (l *Log) Refused(ctx context.Context, method string, err error) {
	if err == nil {
		return
	}
	code := wire.KindOf(err).Code
	if event := Event(code); event.isRefusal() {
		l.Write(ctx, Record{Event: event, Method: method, Code: code, Detail: err.Error()})
	}
}

// Outcome records an event with the error of the call. A failed call of an operator is
// recorded as well, because it may have taken effect. A refused call has a line of its
// own, and a call to a follower is recorded by the leader: Outcome leaves out both.
func (l *Log) Outcome(ctx context.Context, r Record, err error) {
	if err != nil {
		r.Code = wire.KindOf(err).Code
		if Event(r.Code).isRefusal() || r.Code == wire.CodeNotLeader || r.Event == Grant || r.Event == Sign {
			return
		}
		r.Detail = err.Error()
	}
	l.Write(ctx, r)
}

// Ended records a lease in correctness mode that was released, or lost because its session was not renewed. Every
// member sees the event; the leader records it.
func (l *Log) Ended(e *machine.Event) {
	how := Expire
	if e.Type == machine.EventReleased {
		how = Release
	}
	r := Record{Event: how, User: e.User, Holder: e.Holder, Token: uint64(e.Token), Mode: wire.ModeText(e.Mode),
		Resources: names(e.Resources)}
	l.Write(context.Background(), r)
}

// Released records a lease in efficiency mode that this member has released for its holder.
func (l *Log) Released(ctx context.Context, held *engine.Held) {
	l.Write(ctx, Record{Event: Release, Holder: held.Holder, Token: uint64(held.Token),
		Mode: wire.ModeText(engine.Efficiency), Resources: names(held.Resources)})
}

func names(resources []fencing.Resource) []string {
	list := make([]string, len(resources))
	for i, name := range resources {
		list[i] = strings.Clone(string(name))
	}
	return list
}
