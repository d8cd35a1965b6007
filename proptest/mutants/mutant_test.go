package main

import (
	"os"
	"regexp"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// The mutants of this tree must fit its sources.
func TestAllMutantsFit(t *testing.T) {
	mutants, err := find(os.DirFS("../.."), regexp.MustCompile(""), "")
	require.NoError(t, err)
	require.NotEmpty(t, mutants)
	seen := map[string]bool{}
	for _, m := range mutants {
		require.False(t, seen[m.Name], "two mutants are named %s", m.Name)
		seen[m.Name] = true
		require.NotEmpty(t, m.What)
	}
}

func TestRead(t *testing.T) {
	const source = "package a\n\nfunc f(x int) bool { return x >= 1 }\n"
	tests := []struct {
		name, text, says string
	}{
		{"good", "strict\nfile: a/a.go\ntest: -run 'TestF|TestG' ./a\n--- old\nx >= 1 }\n--- new\nx > 1 }\n", ""},
		{"does not fit", "strict\nfile: a/a.go\ntest: ./a\n--- old\nx >= 2\n--- new\nx > 1\n", "occurs 0 times"},
		{"no new part", "strict\nfile: a/a.go\ntest: ./a\n--- old\nx >= 1 }\n", "without"},
		{"no change", "strict\nfile: a/a.go\ntest: ./a\n--- old\nx >= 1 }\n--- new\nx >= 1 }\n", "changes nothing"},
		{"no test", "strict\nfile: a/a.go\n--- old\nx >= 1 }\n--- new\nx > 1 }\n", "needs a test"},
		{"no such file", "strict\nfile: b.go\ntest: ./a\n--- old\nx >= 1 }\n--- new\nx > 1 }\n", "b.go"},
		{"noise", "strict\nfile: a/a.go\nwhat?\n", "cannot parse the line"},
		{"runs", "strict\nruns: some\n", "not a number"},
		{"group", "strict\ngroup: slow\n", "unknown"},
		{"quote", "strict\ntest: -run 'X\n", "unclosed quote"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := fstest.MapFS{
				"a/a.go":                   {Data: []byte(source)},
				"a/testdata/mutants.txtar": {Data: []byte("-- other --\nnot read\n-- it-s --\n" + tt.text)},
			}
			mutants, err := find(root, regexp.MustCompile("it"), "")
			if tt.says != "" {
				require.ErrorContains(t, err, tt.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, []mutant{{Name: "it-s", Folder: "a", What: "strict", Runs: 1, Test: []string{"-run", "TestF|TestG",
				"./a"},
				Files: map[string]string{"a/a.go": "package a\n\nfunc f(x int) bool { return x > 1 }\n"}}}, mutants)
		})
	}
}

func TestFindByGroup(t *testing.T) {
	text := "strict\nfile: a.go\ntest: ./a\n--- old\nx\n--- new\ny\n"
	root := fstest.MapFS{"a.go": {Data: []byte("x\n")},
		"testdata/mutants.txtar": {Data: []byte("-- slow --\n" + text + "-- quick --\nquick\ngroup: fast\n" + text[7:])}}
	for group, want := range map[string]int{"": 2, "fast": 1} {
		mutants, err := find(root, regexp.MustCompile(""), group)
		require.NoError(t, err)
		require.Len(t, mutants, want)
	}
	mutants, err := find(root, regexp.MustCompile("^slow$"), "")
	require.NoError(t, err)
	require.Len(t, mutants, 1)
}

func TestArchiveStartsWithAName(t *testing.T) {
	root := fstest.MapFS{"testdata/mutants.txtar": {Data: []byte("a comment\n-- it-s --\n")}}
	_, err := find(root, regexp.MustCompile(""), "")
	require.ErrorContains(t, err, "-- name --")
}
