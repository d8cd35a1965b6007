package tidy

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

var machineRule = rule{
	name: "machine",
	why: "Replicas that apply the same log must be equal byte for byte, so the machine must be a pure function of the " +
		"log. " +
		"What it may use is listed in internal/tidy/machine_test.go.",
	check:   checkMachine,
	samples: machineSamples,
}

// machineFolder contains the package that must be pure.
const machineFolder = "raftstore/machine"

// purePackages are the packages of the standard library that the machine may
// import. None of them has a clock, randomness, I/O or blocking calls. reflect and
// hash/maphash are missing on purpose: they reveal the order or the seed of maps.
var purePackages = []string{
	"bytes", "cmp", "crypto/sha256", "encoding/binary", "encoding/hex", "errors", "fmt", "hash", "hash/crc32", "hash/fnv",
	"iter", "maps", "math", "math/bits", "slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf8",
}

// pureNames are the names that the machine may use from packages that also have a
// clock or I/O.
var pureNames = map[string][]string{
	"time": {"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"},
	"fmt":  {"Errorf", "Sprintf", "Sprint", "Appendf", "Append", "Stringer"},
}

func checkMachine(t *tree) ([]breach, error) {
	var breaches []breach
	for _, f := range t.code {
		if f.test || f.folder != machineFolder {
			continue
		}
		for _, spec := range f.syntax.Imports {
			name := importPath(spec)
			if isStandard(name) && !slices.Contains(purePackages, name) {
				breaches = append(breaches, f.breach(spec.Pos(), "the machine may not import %s", name))
			}
		}
		for pkg, names := range pureNames {
			f.uses(pkg, func(pos token.Pos, name string) {
				if !slices.Contains(names, name) {
					breaches = append(breaches, f.breach(pos, "the machine may not use %s.%s; from that package it may use only %s",
						pkg, name,
						strings.Join(names, ", ")))
				}
			})
		}
		breaches = append(breaches, concurrent(f)...)
		for _, group := range f.syntax.Comments {
			for _, c := range group.List {
				if strings.HasPrefix(c.Text, "//go:build ") || strings.HasPrefix(c.Text, "//go:linkname ") {
					breaches = append(breaches, f.breach(c.Pos(), "the machine must be the same on every platform; remove %s",
						strings.Fields(c.Text)[0]))
				}
			}
		}
	}
	return breaches, nil
}

// concurrent finds goroutines and channels.
func concurrent(f *source) []breach {
	var breaches []breach
	found := func(n ast.Node, what string) {
		breaches = append(breaches, f.breach(n.Pos(), "the machine may not use %s", what))
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.GoStmt:
			found(n, "goroutines")
		case *ast.SelectStmt:
			found(n, "select")
		case *ast.ChanType:
			found(n, "channels")
		case *ast.SendStmt:
			found(n, "channels")
		case *ast.UnaryExpr:
			if x.Op == token.ARROW {
				found(n, "channels")
			}
		case *ast.CallExpr:
			if id, ok := x.Fun.(*ast.Ident); ok && (id.Name == "print" || id.Name == "println") {
				found(n, id.Name)
			}
		}
		return true
	})
	return breaches
}

var machineSamples = []sample{
	{
		name: "values in, values out",
		files: map[string]string{
			"raftstore/machine/a.go": lines(`package machine`, `import ("errors"; "fmt"; "time"; "example.com/leased/lease")`,
				`const limit = 3 * time.Second + time.Nanosecond`, `type s struct { ttl time.Duration; id lease.ID }`,
				`func (s) String() string { return fmt.Sprintf("%v", errors.New("x")) }`),
			"raftstore/machine/a_test.go": lines(`package machine`, `import ("math/rand/v2"; "time"; "sync")`,
				`var c = make(chan int)`, `func f() { go rand.Int(); time.Now(); <-c }`),
			"raftstore/a.go": lines(`package raftstore`, `import "sync"`, `func f() { go f() }`),
		},
	},
	{
		name: "a clock, randomness, I/O",
		files: map[string]string{
			"raftstore/machine/a.go": lines(`package machine`, `import (`, `	"crypto/rand"`, `	"fmt"`, `	"hash/maphash"`,
				`	"math/rand/v2"`, `	"net/http"`,
				`	"os"`, `	"reflect"`, `	"sync"`, `	"sync/atomic"`, `	"time"`, `)`,
				`func f() { fmt.Println("x") }`, `var t time.Time`, `var after = time.AfterFunc`, `func g() { println("x") }`),
			"raftstore/machine/b.go": lines(`//go:build linux`, ``, `package machine`),
		},
		want: []string{
			"raftstore/machine/a.go:3 may not import crypto/rand",
			"raftstore/machine/a.go:5 may not import hash/maphash",
			"raftstore/machine/a.go:6 may not import math/rand/v2",
			"raftstore/machine/a.go:7 may not import net/http",
			"raftstore/machine/a.go:8 may not import os",
			"raftstore/machine/a.go:9 may not import reflect",
			"raftstore/machine/a.go:10 may not import sync",
			"raftstore/machine/a.go:11 may not import sync/atomic",
			"raftstore/machine/a.go:14 may not use fmt.Println",
			"raftstore/machine/a.go:15 may not use time.Time",
			"raftstore/machine/a.go:16 may not use time.AfterFunc",
			"raftstore/machine/a.go:17 may not use println",
			"raftstore/machine/b.go:1 remove //go:build",
		},
	},
	{
		name: "goroutines and channels",
		files: map[string]string{
			"raftstore/machine/a.go": lines(`package machine`, `type s struct {`, `	wake chan int`, `}`,
				`func (x s) f() {`, `	go x.f()`, `	x.wake <- 1`, `	<-x.wake`, `	select {}`, `}`),
		},
		want: []string{
			"raftstore/machine/a.go:3 may not use channels",
			"raftstore/machine/a.go:6 may not use goroutines",
			"raftstore/machine/a.go:7 may not use channels",
			"raftstore/machine/a.go:8 may not use channels",
			"raftstore/machine/a.go:9 may not use select",
		},
	},
}
