//go:build unix

package conformance

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

var (
	suiteTests = flag.String("k", "", "run only these tests of the Python client, or these files of the TypeScript client")
	testName   = flag.String("name", "", "run only the tests of the TypeScript client with this name")
)

// The suites run at the same time, in several processes each: their tests mostly wait.
func TestPython(t *testing.T) {
	t.Parallel()
	source, err := filepath.Abs("../python/src")
	require.NoError(t, err)
	if overlay := mutant(t); len(overlay) > 0 {
		source = filepath.Join(t.TempDir(), "src")
		copyWith(t, overlay, "../python/src", source)
	}
	runSuite(t, "../python", "/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "4",
		"-o", "pythonpath="+source+" tests", "-k", *suiteTests)
}

func TestTypeScript(t *testing.T) {
	t.Parallel()
	require.NoError(t, testserver.BuildTypeScript("../typescript"))
	dir := "../typescript"
	if overlay := mutant(t); len(overlay) > 0 {
		dir = t.TempDir()
		for _, name := range []string{"src", "test", "package.json", "tsconfig.json"} {
			copyWith(t, overlay, filepath.Join("../typescript", name), filepath.Join(dir, name))
		}
		modules, err := filepath.Abs("../typescript/node_modules")
		require.NoError(t, err)
		require.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
		build := exec.Command("npx", "tsc")
		build.Dir = dir
		output, err := build.CombinedOutput()
		require.NoError(t, err, "[build failed]\n%s", output)
	}
	files, err := filepath.Glob(filepath.Join(dir, "test", "*"+*suiteTests+"*.test.js"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	args := []string{"--test", "--test-concurrency=4"}
	if *testName != "" {
		args = append(args, "--test-name-pattern", *testName)
	}
	for _, file := range files {
		args = append(args, filepath.Join("test", filepath.Base(file)))
	}
	runSuite(t, dir, "node", args...)
}

// runSuite runs a suite against the leased binary.
func runSuite(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, os.Environ(), os.Stdout, os.Stderr
	if os.Getenv("TEST_BINARY") == "" {
		binary, err := testserver.BuildLeased(t.TempDir())
		require.NoError(t, err)
		cmd.Env = append(cmd.Env, "TEST_BINARY="+binary)
	}
	require.NoError(t, cmd.Run())
}

// mutant returns the files that proptest/mutants has edited, by the path of the original.
func mutant(t *testing.T) map[string]string {
	t.Helper()
	var overlay struct{ Replace map[string]string }
	if name := os.Getenv("MUTANT_OVERLAY"); name != "" {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &overlay))
	}
	return overlay.Replace
}

// copyWith copies a file or a folder, with the edited files in place of their originals.
func copyWith(t *testing.T, overlay map[string]string, from, to string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(from, func(name string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, name[len(from):])
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		original, err := filepath.Abs(name)
		require.NoError(t, err)
		if edited, ok := overlay[original]; ok {
			name = edited
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		return os.WriteFile(target, text, 0o600)
	}))
}
