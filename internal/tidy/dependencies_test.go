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
	name:    "dependencies",
	why:     "Who imports fencing, lease or storagegate must not have to compile gRPC, Raft or a Redis client.",
	check:   checkDependencies,
	samples: dependencySamples,
}

// light are the packages that bring nothing along but the standard library and
// the packages of ours beside them.
var light = map[string][]string{
	"fencing":     {},
	"lease":       {"fencing", "lease/engine"},
	"storagegate": {"fencing"},
}

// checkDependencies asks the go command what would be compiled, which sees what
// the matrix does not: what comes along with an import.
func checkDependencies(t *tree) ([]breach, error) {
	var breaches []breach
	for _, root := range slices.Sorted(maps.Keys(light)) {
		if !t.has(root) {
			continue
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
		breaches = append(breaches, t.heavy(root, compiled)...)
	}
	return breaches, nil
}

// heavy finds where the packages of ours that root needs import what root must
// not need.
func (t *tree) heavy(root string, compiled map[string][]string) []breach {
	var breaches []breach
	for _, f := range t.code {
		from := t.module + "/" + f.folder
		needed, ok := compiled[from]
		if f.test || !ok {
			continue
		}
		for _, spec := range f.syntax.Imports {
			name := importPath(spec)
			folder, ours := t.ours(name)
			if _, compiled := compiled[name]; !compiled || !slices.Contains(needed, name) {
				continue // standard library, or a file of another platform
			}
			if !ours || folder != root && !slices.Contains(light[root], folder) {
				breaches = append(breaches, f.breach(spec.Pos(), "a program that imports only %s would compile %s", root, name))
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
		name: "a heavy module comes along with a package of ours",
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
}
