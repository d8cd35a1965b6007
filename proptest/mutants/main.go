// Command mutants shows that the tests can fail. It applies known bugs, each a small edit
// of the source, with go test -overlay, runs the test that must catch each of them, and
// prints a table. The tree itself stays unchanged, and production code has no switches
// for tests.
//
// It does not generate mutants: a line that no mutant edits may still be untested.
//
//	go run ./proptest/mutants [-run regexp] [-group fast] [-parallel n]
//
// The mutants of a package are the files of a txtar archive, testdata/mutants.txtar,
// beside the test that must catch them:
//
//	-- name-of-the-mutant --
//	what the edit breaks, in one line
//	file: path/of/the/source.go
//	test: -run 'TestName' ./package
//	runs: 5 (how often the test may run until it catches the mutant; default 1)
//	group: fast (make prop runs it, too: its test takes seconds and needs no server)
//	--- old
//	whole lines that occur in the file exactly once
//	--- new
//	their replacement
//
// The source may be in another language if the test applies the overlay in MUTANT_OVERLAY (sdk/conformance).
// A mutant may have several pairs of old and new, and several "file:" lines, each for the
// pairs that follow it. An edit that no longer fits the source is an error, as is a mutant
// that no test catches.
//
// Files, in reading order: main.go; mutant.go, which parses mutants and applies their
// edits; trial.go, which runs their tests.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"text/tabwriter"
)

func main() {
	only := flag.String("run", "", "run only the mutants whose names match this regular expression")
	group := flag.String("group", "", "run only the mutants of this group: fast")
	parallel := flag.Int("parallel", 1, "number of mutants to try at the same time")
	flag.Parse()
	if err := run(*only, *group, max(1, *parallel)); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(only, group string, parallel int) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	mutants, err := find(os.DirFS("."), pattern, group)
	if err != nil {
		return err
	}
	if len(mutants) == 0 {
		return fmt.Errorf("no mutant matches %q in group %q", only, group)
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	defer out.Flush()
	fmt.Fprintln(out, "MUTANT\tCAUGHT BY\tAFTER\tWHAT IT BREAKS")
	return tryAll(out, mutants, parallel)
}

// tryAll tries mutants, some at the same time, and prints a line for each.
func tryAll(out *tabwriter.Writer, mutants []mutant, parallel int) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	escaped, failed := 0, 0
	baselines := baselinesOf(mutants)
	slots := make(chan struct{}, parallel)
	for _, m := range mutants {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			v, err := verdict{}, baselines[strings.Join(m.Test, " ")]()
			if err == nil {
				v, err = try(m)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failed++
				errs = append(errs, fmt.Errorf("%s: %w", m.Name, err))
				v.Caught = "ERROR"
			case v.Caught == "":
				escaped++
				v.Caught = "NOTHING"
			}
			fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", m.Name, v.Caught, v.After, m.What)
			out.Flush()
		})
	}
	wg.Wait()
	fmt.Fprintf(out, "%d mutants, %d caught, %d escaped, %d could not be tried\n", len(mutants),
		len(mutants)-escaped-failed, escaped, failed)
	if escaped > 0 {
		errs = append(errs, fmt.Errorf("%d mutants escaped: no test covers what they break", escaped))
	}
	return errors.Join(errs...)
}

// baselinesOf returns, for each test command, a function that runs it once without a
// mutant: a test that fails then catches nothing.
func baselinesOf(mutants []mutant) map[string]func() error {
	all := map[string]func() error{}
	for _, m := range mutants {
		command := strings.Join(m.Test, " ")
		if all[command] == nil {
			all[command] = sync.OnceValue(func() error { return baseline(m) })
		}
	}
	return all
}
