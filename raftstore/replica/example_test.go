package replica_test

import (
	"fmt"
	"log"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/replica"
)

// ignore is an Observer that does nothing.
type ignore struct{}

func (ignore) Applied(*raft.Log, *machine.Machine, machine.Command, machine.Result, []machine.Event) []func() {
	return nil
}
func (ignore) Restored(_, _ *machine.Machine) []func() { return nil }
func (ignore) Awaits([]byte) bool                      { return false }
func (ignore) Answer([]byte, []machine.Result)         {}

// Replicas that applied the same entries have the same chain, and a snapshot keeps it.
func Example() {
	fatal := func(err error) { log.Fatal(err) }
	one, two := replica.New("n1", fatal, ignore{}), replica.New("n2", fatal, ignore{})
	open := &machine.OpenSession{Session: engine.SessionID{1}, TTL: engine.DefaultTTL}
	entry := &raft.Log{Index: 1, Data: replica.EncodeEntry(replica.Chain{}, []machine.Command{open})}
	one.Apply(entry)
	two.Apply(entry)
	fmt.Println("equal:", one.Chain() == two.Chain())

	var state []byte
	chain := one.Chain()
	one.Read(func(m *machine.Machine) { state = replica.EncodeState(chain, m) })
	restored, _, err := replica.DecodeState(state)
	fmt.Println("restored:", restored == two.Chain(), err)
	// Output:
	// equal: true
	// restored: true <nil>
}
