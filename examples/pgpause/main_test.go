//go:build unix

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if isHolder() {
		actAsHolder()
		return
	}
	os.Exit(m.Run())
}

func TestTheStory(t *testing.T) {
	var out strings.Builder
	require.NoError(t, show(t.Context(), &out), "%s", &out)
	t.Log(out.String())
	before, after, found := strings.Cut(out.String(), "2. The same lock, and a gate")
	require.True(t, found)
	inOrder(t, before,
		"alice  acquires the lock, token 1", "alice  reads the balance: 100", "SIGSTOP",
		"bob    acquires the lock, token 2", "bob    reads the balance: 100", "bob    writes the balance: 150",
		"SIGCONT", "alice  writes the balance: 70", "Bob's 50 are lost")
	inOrder(t, after,
		"alice  acquires the lock, token 3", "alice  reads the balance: 100", "SIGSTOP",
		"bob    acquires the lock, token 4", "bob    writes the balance: 150",
		"SIGCONT", "alice  is refused: stale fencing token 3 for \"account/7\": 4 has been admitted",
		"alice  acquires the lock, token 5", "alice  reads the balance: 150", "alice  writes the balance: 120",
		"both updates are there")
}

func inOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		_, rest, found := strings.Cut(text, part)
		require.True(t, found, "%q is missing in the rest of the story:\n%s", part, text)
		text = rest
	}
}
