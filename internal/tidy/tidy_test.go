package tidy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rules lists all rules. Each one needs samples.
var rules = []rule{
	importsRule,
	dependenciesRule,
	noticeRule,
	clockRule,
	machineRule,
	machineOrderRule,
	docsRule,
	examplesRule,
	sizeRule,
	lineLengthRule,
	waitsRule,
	skipsRule,
	pathsRule,
	retiredRule,
	linksRule,
	readmeRule,
	frozenRule,
}

// rule is a property that every file of a tree must have.
type rule struct {
	name    string
	why     string // printed once if the rule is broken
	check   func(*tree) ([]breach, error)
	samples []sample
}

// sample is a small repository and the places in it that break the rule, each as
// "file:line" and a part of the message. If want is empty, the sample keeps the rule.
type sample struct {
	name  string
	files map[string]string
	want  []string
}

// breach is one place that breaks a rule.
type breach struct {
	path string
	line int
	text string
}

func (b breach) String() string { return fmt.Sprintf("%s:%d: %s", b.path, b.line, b.text) }

func TestRepository(t *testing.T) {
	tree, err := load(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.NotEmpty(t, tree.code, "no Go files were found")
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			breaches, err := r.check(tree)
			require.NoError(t, err)
			for _, b := range sorted(breaches) {
				t.Errorf("%v [%s]", b, r.name)
			}
			if t.Failed() {
				t.Log(r.why)
			}
		})
	}
}

func TestSamples(t *testing.T) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			kept, broken := 0, 0
			for _, s := range r.samples {
				if len(s.want) == 0 {
					kept++
				} else {
					broken++
				}
				t.Run(s.name, func(t *testing.T) { s.run(t, r) })
			}
			require.Positive(t, kept, "the rule has no sample that keeps it")
			require.Positive(t, broken, "the rule has no sample that breaks it")
		})
	}
}

func (s sample) run(t *testing.T, r rule) {
	tree, err := load(s.write(t))
	require.NoError(t, err)
	breaches, err := r.check(tree)
	require.NoError(t, err)
	breaches = sorted(breaches)
	for i, b := range breaches {
		require.Less(t, i, len(s.want), "unexpected breach: %v", b)
		place, text, _ := strings.Cut(s.want[i], " ")
		require.True(t, strings.HasPrefix(b.String(), place+": "), "want a breach at %s, got: %v", place, b)
		require.Contains(t, b.text, text)
	}
	require.Len(t, breaches, len(s.want))
}

// write creates a folder with the files of a sample, and a go.mod if it has none.
func (s sample) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"go.mod": "module example.com/leased\n\ngo 1.25\n"}
	for path, text := range s.files {
		files[path] = text
	}
	for path, text := range files {
		path = filepath.Join(dir, filepath.FromSlash(path))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return dir
}

func sorted(breaches []breach) []breach {
	slices.SortFunc(breaches, func(a, b breach) int {
		if c := strings.Compare(a.path, b.path); c != 0 {
			return c
		}
		if a.line != b.line {
			return a.line - b.line
		}
		return strings.Compare(a.text, b.text)
	})
	return slices.Compact(breaches)
}

// lines joins the lines of a sample file.
func lines(text ...string) string { return strings.Join(text, "\n") + "\n" }
