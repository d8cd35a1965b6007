package main

import (
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the last column of the tables in README.md")

// row is one row of the tables in README.md.
type row struct {
	line       int
	measure    string
	mutants    []string
	caught     string
	documented bool // its table lists measures that a document describes
}

var quoted = regexp.MustCompile("`([^`]+)`")

// rows reads the tables.
func rows(t *testing.T) []row {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var all []row
	documented := false
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "## ") {
			documented = strings.Contains(line, "/docs/")
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		if !strings.HasPrefix(line, "| ") || strings.TrimSpace(cells[0]) == "safety measure" {
			continue
		}
		require.Len(t, cells, 3, "README.md:%d", i+1)
		r := row{line: i + 1, measure: strings.TrimSpace(cells[0]), caught: strings.TrimSpace(cells[2]),
			documented: documented}
		for _, match := range quoted.FindAllStringSubmatch(cells[1], -1) {
			r.mutants = append(r.mutants, match[1])
		}
		all = append(all, r)
	}
	return all
}

func tree(t *testing.T) map[string]mutant {
	t.Helper()
	mutants, err := find(os.DirFS("../.."), regexp.MustCompile(""), "")
	require.NoError(t, err)
	byName := map[string]mutant{}
	for _, m := range mutants {
		byName[m.Name] = m
	}
	return byName
}

// Every safety measure that a document describes has a mutant, and make test fails with it.
func TestEverySafetyMeasureHasAMutant(t *testing.T) {
	known := tree(t)
	measures := 0
	for _, r := range rows(t) {
		if !r.documented {
			continue
		}
		measures++
		var caught []mutant
		for _, name := range r.mutants {
			m, ok := known[name]
			require.True(t, ok, "README.md:%d names %s, which does not exist", r.line, name)
			caught = append(caught, m)
		}
		require.True(t, slices.ContainsFunc(caught, plain),
			"README.md:%d: no mutant of %q is caught by a test that make test runs with the same flags", r.line, r.measure)
		if *update {
			rewriteLastColumn(t, r.line, caughtIn(caught))
			continue
		}
		require.Equal(t, caughtIn(caught), r.caught,
			"README.md:%d: the last column of %q is outdated; run go test ./proptest/mutants -update", r.line, r.measure)
	}
	require.Greater(t, measures, 60, "too few rows were found")
}

// rewriteLastColumn replaces the last column of a row.
func rewriteLastColumn(t *testing.T, line int, cell string) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	before, _, _ := cutLast(strings.TrimSuffix(lines[line-1], " |"), " | ")
	lines[line-1] = before + " | " + cell + " |"
	require.NoError(t, os.WriteFile("README.md", []byte(strings.Join(lines, "\n")), 0o644))
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// Every mutant is in a table: by its name, or by its folder.
func TestEveryMutantIsInTheTable(t *testing.T) {
	named := map[string]bool{}
	for _, r := range rows(t) {
		for _, name := range r.mutants {
			named[name] = true
		}
	}
	for name, m := range tree(t) {
		in := named[name]
		for folder := m.Folder; folder != "."; folder = path.Dir(folder) {
			in = in || named[folder+"/*"]
		}
		require.True(t, in, "%s is in no table of proptest/mutants/README.md: add it to the row of the measure that it "+
			"removes", name)
	}
}

// The tests that mutants name exist.
func TestMutantsNameTestsThatExist(t *testing.T) {
	for _, m := range tree(t) {
		folder, names := target(m)
		files, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
		require.NoError(t, err)
		var text strings.Builder
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			text.Write(data)
		}
		for _, name := range names {
			require.True(t, strings.Contains(text.String(), "func "+name), "%s names %s, which does not exist in %s", m.Name,
				name, folder)
		}
	}
}

var testName = regexp.MustCompile(`\b(Test|Fuzz)\w+`)

// target returns the package of a mutant's test and the names of the tests; none stands for
// all.
func target(m mutant) (folder string, names []string) {
	for i, word := range m.Test {
		switch {
		case strings.HasPrefix(word, "./"):
			folder = path.Clean(word)
		case i > 0 && m.Test[i-1] == "-run":
			names = testName.FindAllString(word, -1)
		}
	}
	slices.Sort(names)
	return folder, slices.Compact(names)
}

// caughtIn lists the tests that catch mutants, each folder once.
func caughtIn(mutants []mutant) string {
	var folders []string
	tests := map[string][]string{}
	for _, m := range mutants {
		folder, names := target(m)
		if !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
		for _, name := range names {
			if !slices.Contains(tests[folder], name) {
				tests[folder] = append(tests[folder], name)
			}
		}
	}
	var cells []string
	for _, folder := range folders {
		if names := tests[folder]; len(names) > 0 {
			folder = fmt.Sprintf("%s: %s", folder, strings.Join(names, ", "))
		}
		cells = append(cells, folder)
	}
	return strings.Join(cells, "; ")
}

// seedsOfProp is the number of seeds that make prop runs in the simulator.
const seedsOfProp = 540

// plain reports whether make test runs a mutant's test with the same or a larger budget,
// and without a selection of faults.
func plain(m mutant) bool {
	for _, word := range m.Test {
		name, value, isFlag := strings.Cut(word, "=")
		if !isFlag || !strings.HasPrefix(name, "-") {
			continue
		}
		n, _ := strconv.Atoi(value)
		if name != "-rapid.shrinktime" && name != "-rapid.nofailfile" && (name != "-sim.runs" || n > seedsOfProp) {
			return false
		}
	}
	return true
}
