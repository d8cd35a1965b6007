package peers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// Modules that programs are built from: that of the benchmark, and ours.
const benchModule, leasedModule = "github.com/leased-project/leased/bench", "github.com/leased-project/leased"

// build returns a [service].built that builds a package once for each dir. The go.mod in a folder of a module names its
// version.
func build(module, folder, pkg string) func(ctx context.Context, dir string) (string, error) {
	return func(ctx context.Context, dir string) (string, error) {
		file := filepath.Join(dir, strings.ReplaceAll(pkg, "/", "-")+"-program")
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
		source, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			return "", fmt.Errorf("find the source of %s: %w; run the benchmark in its folder", module, err)
		}
		command := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(string(bytes.TrimSpace(source)), folder),
			"-o", file, pkg)
		if text, err := command.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", pkg, err, text)
		}
		return file, nil
	}
}

// firstLine returns a function that returns the first line that a program prints, without a prefix.
func firstLine(prefix string, args ...string) func(c *Cluster) string {
	return func(c *Cluster) string {
		text, _ := exec.Command(c.program, args...).Output()
		line, _, _ := strings.Cut(string(text), "\n")
		return strings.TrimPrefix(line, prefix)
	}
}

// library returns the name and version of a Go module that this program contains, such
// as "redsync v4.18.1".
func library(name, module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return name + " " + dep.Version
			}
		}
	}
	return name
}
