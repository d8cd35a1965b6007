package tidy

import "go/token"

var waitsRule = rule{
	name:    "waits",
	why:     "A sleep in real time is too short on a busy machine and too long everywhere else. Wait for a condition, or use testing/synctest.",
	check:   checkWaits,
	samples: waitsSamples,
}

// checkWaits finds sleeps in tests, and in the suites that tests run. In a
// bubble of synctest a sleep takes no time and means what it says; a file that
// imports synctest is taken to sleep there.
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

// isTest reports whether the file is a test or a suite of them.
func (f *source) isTest() bool { return f.test || f.imports("testing") }

var waitsSamples = []sample{
	{
		name: "in a bubble, and outside tests",
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
			"lease/a_test.go":          lines(`package lease`, `import "time"`, ``, `func f() {`, `	time.Sleep(1)`, `}`),
			"lease/leasetest/suite.go": lines(`package leasetest`, `import ("testing"; "time")`, `func Run(*testing.T) { time.Sleep(1) }`),
			"lease/c_test.go":          lines(`package lease`, `import "time"`, `var pause = time.Sleep`),
		},
		want: []string{
			"lease/a_test.go:5 time.Sleep in a test",
			"lease/c_test.go:3 time.Sleep in a test",
			"lease/leasetest/suite.go:3 time.Sleep in a test",
		},
	},
}
