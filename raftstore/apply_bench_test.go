package raftstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// BenchmarkApply measures one acquire and one release in the machine, without and with the
// encoding of the log.
//
//	go test -run '^$' -bench Apply ./raftstore
func BenchmarkApply(b *testing.B) {
	id := engine.NewSessionID()
	pair := func(i int) []machine.Command {
		request := engine.Request{Nonce: engine.Nonce(i + 1),
			Resources: []fencing.Resource{fencing.Resource(fmt.Sprintf("orders/%04d", i%1000))},
			Mode:      engine.Correctness, Wait: true, Holder: "worker-17"}
		return []machine.Command{&machine.Acquire{Session: id, Incarnation: 1, Request: request},
			&machine.Release{Session: id, Incarnation: 1, Nonce: request.Nonce}}
	}
	pairs := make([][]machine.Command, 1<<16)
	entries := make([][]byte, len(pairs))
	for i := range pairs {
		pairs[i] = pair(i)
		entries[i] = machine.Encode(pairs[i]...)
	}
	fresh := func() *machine.Machine {
		m := machine.New()
		m.Apply(&machine.OpenSession{Session: id, TTL: time.Hour})
		return m
	}
	b.Run("acquire and release", func(b *testing.B) {
		b.ReportAllocs()
		m, i := fresh(), 0
		for b.Loop() {
			if i == len(pairs) {
				m, i = fresh(), 0
			}
			for _, c := range pairs[i] {
				m.Apply(c)
			}
			i++
		}
	})
	b.Run("decode, acquire and release", func(b *testing.B) {
		b.ReportAllocs()
		m, i := fresh(), 0
		for b.Loop() {
			if i == len(pairs) {
				m, i = fresh(), 0
			}
			commands, err := machine.Decode(entries[i])
			if err != nil { // require would take as long as the machine
				b.Fatal(err)
			}
			for _, c := range commands {
				m.Apply(c)
			}
			i++
		}
	})
}
