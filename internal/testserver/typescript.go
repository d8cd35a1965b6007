package testserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// BuildTypeScript compiles the client for TypeScript in dir, its folder, and installs what it needs first.
func BuildTypeScript(dir string) error {
	if isCompiled(dir) {
		return nil // the tests of another package may run it now
	}
	steps := [][]string{{"npx", "tsc"}}
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		steps = append([][]string{{"npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"}}, steps...)
	}
	for _, args := range steps {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build the client for TypeScript: %w; its output:\n%s", err, output)
		}
	}
	return nil
}

// isCompiled reports whether the compiled files are newer than the sources.
func isCompiled(dir string) bool {
	compiled, err := os.Stat(filepath.Join(dir, "dist", "index.js"))
	sources, _ := filepath.Glob(filepath.Join(dir, "src", "*.ts"))
	for _, source := range sources {
		written, statErr := os.Stat(source)
		if err != nil || statErr != nil || written.ModTime().After(compiled.ModTime()) {
			return false
		}
	}
	return len(sources) > 0
}
