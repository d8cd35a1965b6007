//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../../.."

// blocks returns the fenced code blocks of a document in a language.
func blocks(t *testing.T, language, path string) (texts []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	for _, block := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		texts = append(texts, block[1])
	}
	return texts
}

// The commands in the documents exist and have the given flags. TestRunbook runs those of
// docs/OPERATIONS.md.
func TestDocumentedCommandsExist(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, path := range []string{"README.md", "docs/CONFIGURATION.md"} {
		for _, block := range blocks(t, "console", path) {
			for line := range strings.Lines(block) {
				command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ ")
				command = strings.Replace(command, "go run ./cmd/leased ", "leased ", 1)
				if !ok || !strings.HasPrefix(command, "leased ") || strings.Contains(command, " -- ") {
					continue
				}
				command, _, _ = strings.Cut(command, " > ")
				out, code := call(t, []string{"PATH=" + filepath.Dir(leased) + ":" + os.Getenv("PATH")}, "sh", "-c",
					command+" --help")
				require.Zero(t, code, "%s: %s: %s", path, command, out)
				require.NotContains(t, out, "Available Commands:", "%s: %s", path, command)
				seen++
			}
		}
	}
	require.GreaterOrEqual(t, seen, 3)
}

// The examples for efficiency mode in docs/API.md work; internal/server tests the
// others.
func TestDocumentedEfficiencyCalls(t *testing.T) {
	t.Parallel()
	_, flags := startRedis(t, 3, "1m")
	_, api := single(t, flags...)
	awaitVotes(t, endpoint(api), 3)
	settings := blocks(t, "sh", "docs/API.md")[0]
	require.Contains(t, settings, "post()")
	for _, block := range blocks(t, "bash", "docs/API.md") {
		var script, want []string
		for line := range strings.Lines(block) {
			if text, ok := strings.CutPrefix(line, "#> "); ok {
				parts := strings.Split(strings.TrimSpace(text), "…")
				for i, part := range parts {
					parts[i] = regexp.QuoteMeta(part)
				}
				want = append(want, strings.Join(parts, ".*"))
				continue
			}
			script = append(script, line, "echo\n")
		}
		out := must(t, []string{"LEASED=http://" + api}, "sh", "-c", "set -eu\n"+settings+strings.Join(script, ""))
		require.Regexp(t, "(?s)"+strings.Join(want, ".*"), out)
	}
}
