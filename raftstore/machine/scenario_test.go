package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// step is a command with its expected result and events, in the format of showResult and
// showEvent.
type step struct {
	command Command
	result  string
	events  string
}

type scenario struct {
	name  string
	steps []step
}

// The clients of the scenarios. Attempt 2 of ann is called ann/2.
var (
	ann = engine.SessionID{1}
	bob = engine.SessionID{2}
	eve = engine.SessionID{3}
	who = map[engine.SessionID]string{ann: "ann", bob: "bob", eve: "eve"}
)

// run runs scenarios, each on a machine of the first generation with sessions of ann, bob and
// eve. Locks with the prefix "slow" have a lock delay. After every command it checks the
// invariants, and that a restored machine is the same.
func run(t *testing.T, scenarios []scenario) {
	t.Helper()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			m := played(t, &Lead{}, &OpenSession{Session: ann, TTL: time.Second}, &OpenSession{Session: bob, TTL: time.Second},
				&OpenSession{Session: eve, TTL: time.Second},
				&SetPolicy{Policy: engine.Policy{Prefix: "slow", Mode: engine.Correctness, LockDelay: time.Minute}})
			for i, step := range s.steps {
				decoded, err := Decode(Encode(inPresentSession(m, step.command)))
				require.NoError(t, err, "step %d", i)
				result, events := m.Apply(decoded[0])
				var told []string
				for _, e := range events {
					told = append(told, showEvent(e))
				}
				require.Equal(t, step.result, showResult(result), "step %d: result", i)
				require.Equal(t, step.events, strings.Join(told, ", "), "step %d: events", i)
				require.NoError(t, m.check(), "step %d", i)
				sameAfterRestore(t, m)
			}
		})
	}
}

// inPresentSession sets the current incarnation of the session in a command without one.
func inPresentSession(m *Machine, c Command) Command {
	name := func(id engine.SessionID, incarnation *uint64) {
		if *incarnation == 0 {
			*incarnation = m.SessionInfo(id).Incarnation
		}
	}
	switch c := c.(type) {
	case *Acquire:
		name(c.Session, &c.Incarnation)
	case *Release:
		name(c.Session, &c.Incarnation)
	case *Expire:
		name(c.Session, &c.Incarnation)
	case *CloseSession:
		name(c.Session, &c.Incarnation)
	}
	return c
}

// showResult formats the code, with the token after a #, the slot after a @, and a range in
// units of 2^32.
func showResult(r Result) string {
	text := r.Code.String()
	if r.Token != fencing.None {
		text += fmt.Sprintf(" #%d", r.Token)
	}
	if r.Slot != 0 {
		text += fmt.Sprintf(" @%d", r.Slot)
	}
	if r.Code == WrongMode {
		text += fmt.Sprintf(" %s is %s", r.Resource, r.Mode)
	}
	if r.Code == Busy {
		text += " " + string(r.Resource)
	}
	if r.Code == OtherPermits {
		text += fmt.Sprintf(" %d", r.Permits)
	}
	if r.Code == Migrating {
		text += fmt.Sprintf(" %s to %s", r.Mode, r.Next)
	}
	if r.Version != 0 {
		text += fmt.Sprintf(" v%d", r.Version)
	}
	if r.Generation != 0 {
		text += fmt.Sprintf(" g%d", r.Generation)
	}
	return text
}

// showEvent formats the attempt, the type, the resources, the token and the slot.
func showEvent(e Event) string {
	names := make([]string, len(e.Resources))
	for i, name := range e.Resources {
		names[i] = string(name)
	}
	on := strings.Join(names, "+")
	switch e.Type {
	case EventDelayed:
		return fmt.Sprintf("%s delayed %d", on, e.DelayID)
	case EventOpened:
		return on + " opened"
	}
	text := fmt.Sprintf("%s/%d %s %s", who[e.Session], e.Nonce, e.Type, on)
	if e.Token != fencing.None {
		text += fmt.Sprintf(" #%d", e.Token)
	}
	if e.Slot != 0 {
		text += fmt.Sprintf(" @%d", e.Slot)
	}
	return text
}

func ask(id engine.SessionID, nonce engine.Nonce, kind engine.Kind, names ...fencing.Resource) *Acquire {
	return &Acquire{Session: id, Request: engine.Request{Nonce: nonce, Kind: kind, Resources: names, Wait: true}}
}

func write(id engine.SessionID, nonce engine.Nonce, names ...fencing.Resource) *Acquire {
	return ask(id, nonce, engine.Exclusive, names...)
}

func read(id engine.SessionID, nonce engine.Nonce, names ...fencing.Resource) *Acquire {
	return ask(id, nonce, engine.Shared, names...)
}

func permit(id engine.SessionID, nonce engine.Nonce, n int, name fencing.Resource) *Acquire {
	a := ask(id, nonce, engine.Permit, name)
	a.Request.Permits = n
	return a
}

// as returns a in this incarnation of its session.
func as(incarnation uint64, a *Acquire) *Acquire {
	a.Incarnation = incarnation
	return a
}

// try returns a without Wait.
func try(a *Acquire) *Acquire {
	a.Request.Wait = false
	return a
}

func expect(mode engine.Mode, a *Acquire) *Acquire {
	a.Request.Mode = mode
	return a
}

func free(id engine.SessionID, nonce engine.Nonce) *Release {
	return &Release{Session: id, Nonce: nonce}
}

func mode(prefix string, mode engine.Mode, version uint64) *SetPolicy {
	return &SetPolicy{Policy: engine.Policy{Prefix: prefix, Mode: mode}, Version: version}
}
