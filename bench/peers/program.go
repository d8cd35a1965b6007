package peers

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
)

// benchModule is the module of the benchmark.
const benchModule = "github.com/leased-project/leased/bench"

// Program is a program that is built once, from a package of a module that bench
// requires.
type Program struct {
	// Module has the folder, and its go.mod names the version of the package.
	Module, Folder, Package string

	mu   sync.Mutex
	path string
}

// Given returns a program that is already built.
func Given(path string) *Program { return &Program{path: path} }

// Path returns the file of the program. The first call builds it in dir.
func (p *Program) Path(ctx context.Context, dir string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.path != "" {
		return p.path, nil
	}
	source, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", p.Module).Output()
	if err != nil {
		return "", fmt.Errorf("find the source of %s: %w; run the benchmark in its folder", p.Module, err)
	}
	file := filepath.Join(dir, strings.ReplaceAll(p.Package, "/", "-")+"-program")
	build := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(string(bytes.TrimSpace(source)), p.Folder),
		"-o", file, p.Package)
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", p.Package, err, text)
	}
	p.path = file
	return file, nil
}

// firstLine returns the first line of the output of a program, without a prefix.
func firstLine(prefix, program string, args ...string) string {
	text, _ := exec.Command(program, args...).Output()
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(line, prefix)
}

// Library returns the name and version of a Go module that this program contains, such
// as "redsync v4.18.1".
func Library(name, module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return name + " " + dep.Version
			}
		}
	}
	return name
}
