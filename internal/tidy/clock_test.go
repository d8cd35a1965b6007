package tidy

import (
	"go/token"
	"slices"
)

var clockRule = rule{
	name: "clock",
	why: "Take an engine.Clock instead: tests pause, drift and suspend it. The exceptions are listed in " +
		"internal/tidy/clock_test.go.",
	check:   checkClock,
	samples: clockSamples,
}

// clockFile is the only file of the library that reads the time.
const clockFile = "lease/engine/clock.go"

// clockFolders may read the time, because no code in them decides about a lease.
var clockFolders = []string{
	"cmd/...",                 // logs and output for people
	"examples/...",            // output for people
	"bench/...",               // benchmarks measure time
	"tools/...",               // output for people
	"internal/load",           // measures time
	"internal/testserver/...", // deadlines of connections to the servers that it starts
	"storagegate/gatetest",    // a benchmark measures writes; the gates have no clock
}

// readsTime are the functions of package time that read the clock.
var readsTime = []string{"Now", "Since", "Until", "*"}

func checkClock(t *tree) ([]breach, error) {
	var breaches []breach
	for _, f := range t.code {
		if f.test || f.path == clockFile || belowAny(f.folder, clockFolders) {
			continue
		}
		f.uses("time", func(pos token.Pos, name string) {
			if slices.Contains(readsTime, name) {
				breaches = append(breaches, f.breach(pos, "time.%s outside %s", name, clockFile))
			}
		})
	}
	return breaches, nil
}

var clockSamples = []sample{
	{
		name: "the clock file, tests and programs read the time",
		files: map[string]string{
			"lease/engine/clock.go": lines(`package engine`, `import "time"`, `var now = time.Now`),
			"lease/a_test.go":       lines(`package lease`, `import "time"`, `var now = time.Now()`),
			"lease/a.go": lines(`package lease`, `import "time"`, `var limit = 3 * time.Second`,
				`var after = time.After`),
			"lease/b.go": lines(`package lease`, `type clock struct{}`, `var time clock`, `func (clock) Now() {}`,
				`func f() { time.Now() }`),
			"internal/testserver/a.go": lines(`package testserver`, `import "time"`, `var start = time.Now()`),
			"examples/x/main.go":       lines(`package main`, `import "time"`, `func main() { println(time.Now().String()) }`),
		},
	},
	{
		name: "library code reads the time",
		files: map[string]string{
			"lease/a.go": lines(`package lease`, `import "time"`, `func f() bool {`, `	return time.Now().IsZero()`,
				`}`),
			"lease/leasetest/clock.go": lines(`package leasetest`, `import t "time"`, `var now = t.Now`),
			"storagegate/sql/a.go":     lines(`package sql`, `import . "time"`, `var now = Now()`),
			"raftstore/a.go":           lines(`package raftstore`, `import "time"`, `var a, b = time.Since, time.Until`),
		},
		want: []string{
			"lease/a.go:4 time.Now outside lease/engine/clock.go",
			"lease/leasetest/clock.go:3 time.Now",
			"raftstore/a.go:3 time.Since",
			"raftstore/a.go:3 time.Until",
			"storagegate/sql/a.go:2 time.*",
		},
	},
}
