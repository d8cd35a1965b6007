package server_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// example is one block of docs/API.md: lines for a shell, and what they print.
type example struct {
	script string
	want   []string
}

// examples reads the blocks of a document. A line that begins with #> is what
// the lines before it print, with … for anything.
func examples(t *testing.T, path string) (list []example) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		var e example
		var lines []string
		for line := range strings.Lines(block[1]) {
			if want, ok := strings.CutPrefix(line, "#> "); ok {
				e.want = append(e.want, strings.TrimSpace(want))
			} else {
				lines = append(lines, line)
			}
		}
		e.script = strings.Join(lines, "")
		list = append(list, e)
	}
	return list
}

// matches reports whether a line is as the document says.
func matches(want, line string) bool {
	parts := strings.Split(want, "…")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*")).MatchString(line)
}

// TestDocument runs the lines of docs/API.md in one shell, as a reader would.
func TestDocument(t *testing.T) {
	s := startOne(t)
	list := examples(t, filepath.Join("..", "..", "docs", "API.md"))
	require.Greater(t, len(list), 10)
	const mark = "--- next ---"
	var script strings.Builder
	script.WriteString("set -eu\n")
	for _, e := range list {
		script.WriteString(e.script + "echo '" + mark + "'\n")
	}
	command := exec.CommandContext(patient(t), "sh", "-c", script.String())
	command.Dir = t.TempDir()
	command.Env = append(os.Environ(), "LEASED=http://"+s.Address())
	out, err := command.CombinedOutput()
	require.NoError(t, err, string(out))
	blocks := strings.Split(string(out), mark)
	require.Len(t, blocks, len(list)+1)
	for i, e := range list {
		lines := strings.Split(strings.TrimSpace(blocks[i]), "\n")
		for _, want := range e.want {
			for len(lines) > 0 && !matches(want, lines[0]) {
				lines = lines[1:]
			}
			require.NotEmpty(t, lines, "the document says\n%s\nand the lines\n%s\nprinted\n%s", want, e.script, blocks[i])
			lines = lines[1:]
		}
	}
}

// TestDocumentNamesEveryCall: the document shows each call of the API.
func TestDocumentNamesEveryCall(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "API.md"))
	require.NoError(t, err)
	for _, call := range []string{"post acquire", "post renew", "post release", "post inspect", "post list ", "/v1/watch", "post break",
		"post open-session", "post close-session", "post set-policy", "post delete-policy", "post list-policies", "post status", "/healthz",
		"post remove", "post transfer", "/v1/save-snapshot", "/v1/inspect-snapshot", "/v1/restore-snapshot"} {
		require.Contains(t, string(text), call)
	}
}
