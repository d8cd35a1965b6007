package model_test

import (
	"flag"
	"os"
	"testing"

	"pgregory.net/rapid"
)

// TestMain makes the runs longer than rapid's default, unless the command line sets their
// length.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.steps"); f.Value.String() == f.DefValue && os.Getenv("RAPID_STEPS") == "" {
		flag.Set("rapid.steps", "40")
	}
	if f := flag.Lookup("rapid.checks"); raced && f.Value.String() == f.DefValue && os.Getenv("RAPID_CHECKS") == "" {
		flag.Set("rapid.checks", "40") // too few to require every case
	}
	os.Exit(m.Run())
}

// TestMachineAgreesWithModel applies random commands to the machine and to the model.
// Results, events and states must be equal after every command, and the log checker must
// report no violation.
func TestMachineAgreesWithModel(t *testing.T) {
	all := newCases()
	for range 12 { // until all cases were reached, which usually takes one round
		for _, profile := range profiles {
			t.Run(profile.name, func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					g := newGenerator(t, newComparison(all), profile)
					g.apply(t, g.begin(t)...)
					t.Repeat(map[string]func(*rapid.T){"batch": func(t *rapid.T) { g.apply(t, g.batch(t)...) }})
				})
			})
		}
		if t.Failed() || len(all.missing()) == 0 {
			break
		}
	}
	if !t.Failed() {
		all.report(t)
	}
}
