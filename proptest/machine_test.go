package proptest

import (
	"flag"
	"os"
	"testing"

	"pgregory.net/rapid"
)

// TestMain makes the runs longer than rapid's default, unless the command line
// says how long they are to be.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.steps"); f.Value.String() == f.DefValue && os.Getenv("RAPID_STEPS") == "" {
		flag.Set("rapid.steps", "40")
	}
	os.Exit(m.Run())
}

// TestMachineAgreesWithModel gives random commands to the machine and to the
// model. They must answer alike, tell the same events in the same order, and be
// in the same state after every command; and the witness must be content.
func TestMachineAgreesWithModel(t *testing.T) {
	all := newCases()
	for _, taste := range tastes {
		t.Run(taste.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s := newScript(t, newPair(all), taste)
				s.apply(t, s.begin(t)...)
				t.Repeat(map[string]func(*rapid.T){"batch": func(t *rapid.T) { s.apply(t, s.batch(t)...) }})
			})
		})
	}
	if !t.Failed() {
		all.report(t)
	}
}
