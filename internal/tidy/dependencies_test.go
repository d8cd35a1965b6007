package tidy

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
)

var dependenciesRule = rule{
	name: "dependencies",
	why: "A program that imports only fencing, lease or storagegate must not compile gRPC, Raft or a Redis client, " +
		"and the production binary must not contain test code.",
	check:   checkDependencies,
	samples: dependencySamples,
}

// light lists packages that depend only on the standard library and on the given
// packages of this repository.
var light = map[string][]string{
	"fencing":     {},
	"lease":       {"fencing", "lease/engine", "internal/clientcore", "storagegate"},
	"storagegate": {"fencing"},
}

// production are the programs that must not contain any of testCode.
var production = []string{"cmd/leased"}

// testCode are the packages of this repository that exist for tests. Test
// libraries of others must not be linked either, and miniredis is one of them.
var testCode = []string{"proptest/...", "lease/leasetest", "storagegate/gatetest", "internal/testserver",
	"internal/servicetest", "internal/browser"}

// checkDependencies asks the go command which packages would be compiled. Unlike
// the import matrix, this covers indirect dependencies.
func checkDependencies(t *tree) ([]breach, error) {
	var breaches []breach
	for _, root := range slices.Sorted(maps.Keys(light)) {
		compiled, err := t.compiled(root)
		if err != nil {
			return nil, err
		}
		breaches = append(breaches, t.imported(compiled, func(name string) bool {
			folder, ours := t.ours(name)
			return !ours || folder != root && !slices.Contains(light[root], folder)
		}, "a program that imports only "+root+" would compile %s")...)
	}
	for _, root := range production {
		compiled, err := t.compiled(root)
		if err != nil {
			return nil, err
		}
		breaches = append(breaches, t.imported(compiled, func(name string) bool {
			folder, ours := t.ours(name)
			return ours && belowAny(folder, testCode) ||
				!ours && (isTheirs(name, testLibraries) || isTheirs(name, []string{"github.com/alicebob/miniredis"}))
		}, root+" would contain %s, which is for tests")...)
	}
	return breaches, nil
}

// compiled returns the packages outside the standard library that are compiled
// into a package, each with its imports. It is empty if the tree has no such package.
func (t *tree) compiled(root string) (map[string][]string, error) {
	if !t.has(root) {
		return nil, nil
	}
	out, err := t.goList(root, "-deps", "-f", "{{if not .Standard}}{{.ImportPath}} {{join .Imports \" \"}}{{end}}")
	if err != nil {
		return nil, err
	}
	compiled := map[string][]string{}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		compiled[fields[0]] = fields[1:]
	}
	return compiled, nil
}

// imported finds the imports in compiled packages of this repository that are
// forbidden.
func (t *tree) imported(compiled map[string][]string, forbidden func(name string) bool, message string) []breach {
	var breaches []breach
	for _, f := range t.code {
		needed, ok := compiled[t.module+"/"+f.folder]
		if f.test || !ok {
			continue
		}
		for _, spec := range f.syntax.Imports {
			name := importPath(spec)
			if _, ok := compiled[name]; !ok || !slices.Contains(needed, name) {
				continue // standard library, or a file for another platform
			}
			if forbidden(name) {
				breaches = append(breaches, f.breach(spec.Pos(), message, name))
			}
		}
	}
	return breaches
}

// has reports whether the tree has a package in the folder.
func (t *tree) has(folder string) bool {
	return slices.ContainsFunc(t.code, func(f *source) bool { return f.folder == folder && !f.test })
}

// goList runs go list in the tree for the package in a folder.
func (t *tree) goList(folder string, args ...string) (string, error) {
	cmd := exec.Command("go", append(append([]string{"list"}, args...), "./"+folder)...)
	cmd.Dir = t.dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("list the package %s: %w\n%s", folder, err, stderr.Bytes())
	}
	return string(out), err
}

var dependencySamples = []sample{
	{
		name: "standard library and fencing",
		files: map[string]string{
			"fencing/a.go":           imports("fencing", "fmt"),
			"fencing/a_test.go":      imports("fencing", "example.com/leased/raftstore"),
			"lease/a.go":             imports("lease", "crypto/rand", "example.com/leased/fencing"),
			"storagegate/a.go":       imports("storagegate", "net/http", "example.com/leased/fencing"),
			"storagegate/sql/a.go":   imports("sql", "example.com/leased/lease"),
			"raftstore/machine/a.go": imports("machine", "example.com/leased/lease"),
		},
	},
	{
		name: "a heavy module is an indirect dependency",
		files: map[string]string{
			"go.mod": lines("module example.com/leased", "", "go 1.25", "", "require example.net/grpc v1.0.0", "",
				"replace example.net/grpc => ./other"),
			"other/go.mod":       "module example.net/grpc\n\ngo 1.25\n",
			"other/grpc.go":      "package grpc\n",
			"fencing/a.go":       imports("fencing", "example.com/leased/api"),
			"api/a.go":           imports("api", "fmt", "example.net/grpc"),
			"lease/a.go":         imports("lease", "example.com/leased/fencing"),
			"storagegate/a.go":   imports("storagegate", "example.com/leased/lease"),
			"raftstore/store.go": imports("raftstore", "example.net/grpc"),
		},
		want: []string{
			"api/a.go:5 imports only fencing would compile example.net/grpc",
			"api/a.go:5 imports only lease would compile example.net/grpc",
			"api/a.go:5 imports only storagegate would compile example.net/grpc",
			"fencing/a.go:4 imports only fencing would compile example.com/leased/api",
			"fencing/a.go:4 imports only lease would compile example.com/leased/api",
			"fencing/a.go:4 imports only storagegate would compile example.com/leased/api",
			"storagegate/a.go:4 imports only storagegate would compile example.com/leased/lease",
		},
	},
	{
		name: "test code in the production binary",
		files: map[string]string{
			"cmd/leased/main.go":         imports("main", "example.com/leased/cmd/leased/internal/x"),
			"cmd/leased/main_test.go":    imports("main", "example.com/leased/lease/leasetest"),
			"cmd/leased/internal/x/a.go": imports("x", "fmt", "example.com/leased/proptest/torture"),
			"cmd/leased-torture/main.go": imports("main", "example.com/leased/proptest/torture"),
			"proptest/torture/a.go":      imports("torture", "example.com/leased/lease/leasetest"),
			"lease/leasetest/a.go":       imports("leasetest", "fmt"),
		},
		want: []string{
			"cmd/leased/internal/x/a.go:5 cmd/leased would contain example.com/leased/proptest/torture, which is for tests",
			"proptest/torture/a.go:4 cmd/leased would contain example.com/leased/lease/leasetest",
		},
	},
}
