package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// shown finds the examples in the README: a command line, and what it prints.
var shown = regexp.MustCompile("(?m)^```(?:console|text)\n\\$ (go run \\./examples/\\w+)\n((?s:.*?))```$")

// The program in the README must be one that compiles and runs.
func TestTheProgramInTheREADMERuns(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	program := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindSubmatch(readme)
	require.NotNil(t, program)
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, program[1], 0o600))
	out, err := exec.Command("go", "run", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// Every example must print what the README says, to the letter.
func TestExamplesRunAsTheREADMEShows(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	examples := shown.FindAllStringSubmatch(string(readme), -1)
	require.GreaterOrEqual(t, len(examples), 4, "the README shows guarded write, election, semaphore and set")
	for _, example := range examples {
		command, want := example[1], example[2]
		t.Run(strings.TrimPrefix(command, "go run ./examples/"), func(t *testing.T) {
			cmd := exec.Command("go", strings.Fields(command)[1:]...)
			cmd.Dir = ".."
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			require.NoError(t, err, "%s", stderr.String())
			require.Equal(t, want, string(out))
		})
	}
}
