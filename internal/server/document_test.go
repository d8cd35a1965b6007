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

// example is one block of docs/API.md: lines for a shell and their expected output.
type example struct {
	script string
	want   []string
}

// examples reads the blocks of a document. A line that starts with #> is the output of
// the lines before it, with … for any text.
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

// matches reports whether a line of output is as the document has it.
func matches(want, line string) bool {
	parts := strings.Split(want, "…")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*")).MatchString(line)
}

// watchTime is the time that the examples of watches run in this test, instead of that
// in the document, which is too short for a busy machine.
const watchTime = "--max-time 10 "

// The examples of docs/API.md, run in one shell, print what the document has.
func TestDocument(t *testing.T) {
	t.Parallel()
	s := startServer(t, withSigner(newSigner(t, 1)))
	list := examples(t, filepath.Join("..", "..", "docs", "API.md"))
	require.Greater(t, len(list), 10)
	const mark = "--- next ---"
	var script strings.Builder
	script.WriteString("set -eu\n")
	for _, e := range list {
		script.WriteString(strings.ReplaceAll(e.script, "--max-time 1 ", watchTime) + "echo '" + mark + "'\n")
	}
	command := exec.CommandContext(testContext(t), "sh", "-c", script.String())
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
			require.NotEmpty(t, lines, "the document has\n%s\nand the lines\n%s\nprinted\n%s", want, e.script, blocks[i])
			lines = lines[1:]
		}
	}
}

// The document shows every call of the API.
func TestDocumentIsComplete(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "API.md"))
	require.NoError(t, err)
	for _, call := range []string{"post acquire", "post renew", "post release", "post inspect", "post list ", "/v1/watch",
		"post break",
		"post open-session", "post close-session", "post set-policy", "post delete-policy", "post list-policies",
		"post status", "/livez", "/readyz",
		"post remove", "post transfer", "/v1/save-snapshot", "/v1/inspect-snapshot", "/v1/restore-snapshot"} {
		require.Contains(t, string(text), call)
	}
}
