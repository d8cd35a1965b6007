// Command mutants shows that the tests can fail. It takes the known ways to be
// wrong, each a small edit of the source, lays each over the tree with
// go test -overlay, runs the test that must catch it, and prints a table. The
// tree itself is not touched, and production code carries no switches.
//
// It does not look for new mutants: a line that no mutant removes may still be
// untested.
//
//	go run ./proptest/mutants [-run regexp] [-group fast]
//
// The mutants of a package are the files of a txtar archive, testdata/mutants.txtar,
// beside the test that must catch them:
//
//	-- name-of-the-mutant --
//	what the edit breaks, in one line
//	file: path/of/the/source.go
//	test: -run 'TestName' ./package
//	runs: 5 (how often the test may run until it catches it; 1 if left out)
//	group: fast (make prop tries it, too: its test takes seconds, and needs no server)
//	--- old
//	whole lines that occur in the file exactly once
//	--- new
//	the lines that stand there instead
//
// One mutant may have several pairs of old and new, and several "file:" lines,
// each for the pairs that follow it. An edit that no longer fits the source is
// an error, as is a mutant that no test catches.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"text/tabwriter"
)

func main() {
	only := flag.String("run", "", "run only the mutants whose names match this regular expression")
	group := flag.String("group", "", "run only the mutants of this group: fast")
	list := flag.Bool("list", false, "list the mutants and check that they fit the source; run nothing")
	flag.Parse()
	if err := run(*only, *group, *list); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(only, group string, list bool) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	mutants, err := find(os.DirFS("."), pattern, group)
	if err != nil {
		return err
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	defer out.Flush()
	fmt.Fprintln(out, "MUTANT\tCAUGHT BY\tAFTER\tWHAT IT BREAKS")
	ran, escaped := 0, 0
	var errs []error
	sound := map[string]error{} // what the tests say without a mutant
	for _, m := range mutants {
		ran++
		if list {
			fmt.Fprintf(out, "%s\t-\t-\t%s\n", m.Name, m.What)
			continue
		}
		v, err := judge(m, sound)
		switch {
		case err != nil: // the others can still be tried
			errs = append(errs, fmt.Errorf("%s: %w", m.Name, err))
			v.Caught = "ERROR"
		case v.Caught == "":
			escaped++
			v.Caught = "NOTHING"
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", m.Name, v.Caught, v.After, m.What)
		out.Flush()
	}
	if ran == 0 {
		return fmt.Errorf("no mutant matches %q in group %q", only, group)
	}
	if list {
		fmt.Fprintf(out, "%d mutants fit the source\n", ran)
		return nil
	}
	fmt.Fprintf(out, "%d mutants, %d caught, %d escaped, %d could not be tried\n", ran, ran-escaped-len(errs), escaped, len(errs))
	out.Flush()
	if escaped > 0 {
		errs = append(errs, fmt.Errorf("%d mutants escaped: each is a claim without a test", escaped))
	}
	return errors.Join(errs...)
}

// judge tries a mutant whose test passes without it. Of each test that is found
// out once.
func judge(m mutant, sound map[string]error) (verdict, error) {
	command := strings.Join(m.Test, " ")
	err, known := sound[command]
	if !known {
		err = baseline(m)
		sound[command] = err
	}
	if err != nil {
		return verdict{}, err
	}
	return try(m)
}
