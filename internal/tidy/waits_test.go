package tidy

import "go/token"

var waitsRule = rule{
	name: "waits",
	why: "A sleep in real time is too short on a busy machine and too long on others. Wait for a condition, or " +
		"use testing/synctest.",
	check:   checkWaits,
	samples: waitsSamples,
}

// checkWaits finds sleeps in tests and in test suites. In a synctest bubble a sleep
// takes no real time, so files that import synctest are not checked.
func checkWaits(t *tree) ([]breach, error) {
	var breaches []breach
	for _, f := range t.code {
		if !f.isTest() || f.imports("testing/synctest") {
			continue
		}
		f.uses("time", func(pos token.Pos, name string) {
			if name == "Sleep" || name == "*" {
				breaches = append(breaches, f.breach(pos, "time.%s in a test without testing/synctest", name))
			}
		})
	}
	return breaches, nil
}

// isTest reports whether the file is a test or part of a test suite.
func (f *source) isTest() bool { return f.test || f.imports("testing") }

var waitsSamples = []sample{
	{
		name: "in a bubble, and outside of tests",
		files: map[string]string{
			"lease/a_test.go": lines(`package lease`, `import ("testing"; "testing/synctest"; "time")`,
				`func TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }`),
			"lease/b_test.go": lines(`package lease`, `import "time"`, `var _ = time.After(time.Second)`),
			"cmd/x/main.go":   lines(`package main`, `import "time"`, `func main() { time.Sleep(1) }`),
		},
	},
	{
		name: "in real time",
		files: map[string]string{
			"lease/a_test.go": lines(`package lease`, `import "time"`, ``, `func f() {`, `	time.Sleep(1)`, `}`),
			"lease/leasetest/suite.go": lines(`package leasetest`, `import ("testing"; "time")`,
				`func Run(*testing.T) { time.Sleep(1) }`),
			"lease/c_test.go": lines(`package lease`, `import "time"`, `var pause = time.Sleep`),
		},
		want: []string{
			"lease/a_test.go:5 time.Sleep in a test",
			"lease/c_test.go:3 time.Sleep in a test",
			"lease/leasetest/suite.go:3 time.Sleep in a test",
		},
	},
}
