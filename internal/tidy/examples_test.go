package tidy

import (
	"go/ast"
	"slices"
	"strings"
)

var examplesRule = rule{
	name:    "examples",
	why:     "A public package needs an Example, so that its page shows how it is used and the compiler checks it.",
	check:   checkExamples,
	samples: exampleSamples,
}

// withoutExamples are folders whose packages are programs or parts of the tests of this
// repository, and not an API.
var withoutExamples = []string{"cmd/...", "examples/...", "proptest/...", "bench/...", "sdk/..."}

// checkExamples requires an Example in every package that other modules can import.
func checkExamples(t *tree) ([]breach, error) {
	public := map[string]*source{} // the first file of each public package
	shown := map[string]bool{}
	for _, f := range t.code {
		switch {
		case f.test && slices.ContainsFunc(f.syntax.Decls, isExample):
			shown[f.folder] = true
		case f.test || f.syntax.Name.Name == "main" || belowAny(f.folder, withoutExamples) ||
			slices.Contains(strings.Split(f.folder, "/"), "internal"):
		case public[f.folder] == nil:
			public[f.folder] = f
		}
	}
	var breaches []breach
	for folder, f := range public {
		if !shown[folder] {
			breaches = append(breaches, f.breach(f.syntax.Package, "package %s has no Example", f.syntax.Name.Name))
		}
	}
	return breaches, nil
}

func isExample(d ast.Decl) bool {
	f, ok := d.(*ast.FuncDecl)
	return ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Example")
}

var exampleSamples = []sample{
	{
		name: "an example, and packages that need none",
		files: map[string]string{
			"lease/a.go":            lines(`package lease`),
			"lease/a_test.go":       lines(`package lease_test`, `func Example() {}`),
			"internal/tidy/a.go":    lines(`package tidy`),
			"lease/internal/x/a.go": lines(`package x`),
			"cmd/x/main.go":         lines(`package main`),
			"proptest/sim/a.go":     lines(`package sim`),
			"recipes/a_test.go":     lines(`package recipes`),
		},
	},
	{
		name: "no example",
		files: map[string]string{
			"lease/a.go":        lines(`// Package lease.`, `package lease`, `func Example() {}`),
			"lease/a_test.go":   lines(`package lease`, `type x struct{}`, `func (x) Example() {}`, `func TestA() {}`),
			"lease/b.go":        lines(`package lease`),
			"lease/wire/a.go":   lines(`package wire`),
			"fencing/a.go":      lines(`package fencing`),
			"fencing/a_test.go": lines(`package fencing`, `func ExampleRule() {}`),
		},
		want: []string{"lease/a.go:2 package lease has no Example", "lease/wire/a.go:1 package wire"},
	},
}
