package process

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"sync"
)

// Program is a program that is built once, from a package of a module that bench
// requires.
type Program struct {
	// Module has the package, such as "./cmd/leased" or ".".
	Module, Package string

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
	args := []string{"build", "-o"}
	file := filepath.Join(dir, path.Base(p.Module)+"-program")
	if p.Package == "." {
		args = append(args, file, p.Module)
	} else {
		source, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", p.Module).Output()
		if err != nil {
			return "", fmt.Errorf("find the source of %s: %w; run the benchmark in its folder", p.Module, err)
		}
		args = []string{"build", "-C", string(bytes.TrimSpace(source)), "-o", file, p.Package}
	}
	if text, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s of %s: %w\n%s", p.Package, p.Module, err, text)
	}
	p.path = file
	return file, nil
}
