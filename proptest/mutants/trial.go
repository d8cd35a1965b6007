package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// verdict is the result of a trial.
type verdict struct {
	Caught string // the test that failed; empty if none did
	After  string // the random case, if the test prints it, else the run
}

// limit bounds a test. A mutant that makes it hang is caught, so the limit must be generous
// on a busy machine.
const limit = "3m"

var (
	timedOut   = regexp.MustCompile(`(?m)^panic: test timed out`)
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	rapidAfter = regexp.MustCompile(`\[rapid\] (?:failed|panic) after (\d+) tests?`)
	seedsAfter = regexp.MustCompile(`failed after (\d+) runs`)
)

// baseline runs a mutant's test on the unchanged tree.
func baseline(m mutant) error {
	plain := m
	plain.Files, plain.Runs = nil, 1
	v, err := try(plain)
	if err == nil && v.Caught != "" {
		err = fmt.Errorf("%s fails without a mutant", v.Caught)
	}
	return err
}

// try runs a mutant's test with its edits, up to Runs times. A mutant that does not compile
// is an error.
func try(m mutant) (verdict, error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return verdict{}, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil { // databases run as another user
		return verdict{}, err
	}
	overlay, err := writeOverlay(dir, m)
	if err != nil {
		return verdict{}, err
	}
	for run := 1; run <= m.Runs; run++ {
		v, err := test(m, overlay)
		if err != nil || v.Caught != "" {
			if v.After == "" {
				v.After = fmt.Sprint("run ", run)
			}
			return v, err
		}
	}
	return verdict{}, nil
}

// test runs the test once.
func test(m mutant, overlay string) (verdict, error) {
	args := append([]string{"test", "-count=1", "-vet=off", "-timeout=" + limit}, m.Test...)
	c := exec.Command("go", args...)
	for i, word := range c.Args { // a folder with a module of its own
		if _, err := os.Stat(filepath.Join(word, "go.mod")); err == nil && strings.HasPrefix(word, "./") {
			c.Dir, c.Args[i] = word, "."
		}
	}
	c.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(overlay)) // removed with the overlay
	// Also for the programs that a test builds.
	c.Env = append(c.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	if len(m.Files) > 0 {
		c.Env = append(c.Env, "MUTANT_OVERLAY="+overlay) // for tests of programs in other languages
	}
	output, err := c.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		if strings.Contains(string(output), "[no tests to run]") {
			return verdict{}, fmt.Errorf("go %s ran no test", strings.Join(m.Test, " "))
		}
		return verdict{}, nil
	case !errors.As(err, &exit):
		return verdict{}, err
	case strings.Contains(string(output), "[build failed]") || strings.Contains(string(output), "[setup failed]"):
		return verdict{}, fmt.Errorf("the mutant does not compile:\n%s", output)
	}
	v := verdict{Caught: "panic or deadlock"}
	if timedOut.Match(output) {
		return verdict{Caught: "timeout after " + limit}, nil
	}
	if match := failedTest.FindAllStringSubmatch(string(output), -1); match != nil {
		v.Caught = match[len(match)-1][1]
	}
	if match := rapidAfter.FindStringSubmatch(string(output)); match != nil {
		if n, err := strconv.Atoi(match[1]); err == nil {
			v.After = fmt.Sprint("case ", n+1)
		}
	}
	if match := seedsAfter.FindStringSubmatch(string(output)); match != nil {
		v.After = "seed " + match[1]
	}
	return v, nil
}

func writeOverlay(dir string, m mutant) (string, error) {
	replace := map[string]string{}
	for name, source := range m.Files {
		original, err := filepath.Abs(filepath.FromSlash(name))
		if err != nil {
			return "", err
		}
		edited := filepath.Join(dir, strconv.Itoa(len(replace))+filepath.Ext(name))
		if err := os.WriteFile(edited, []byte(source), 0o600); err != nil {
			return "", err
		}
		replace[original] = edited
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, data, 0o600)
}
