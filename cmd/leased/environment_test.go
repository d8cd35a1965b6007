package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
)

// Every variable that a command reads is known.
func TestReadVariablesAreKnown(t *testing.T) {
	reads := regexp.MustCompile(`(?:fromEnv|Getenv|LookupEnv)\("(LEASED_[A-Z_]+)"`)
	flags := regexp.MustCompile(`fromEnvironment\([^"]+"([a-z-]+)"`)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	seen := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range reads.FindAllStringSubmatch(string(text), -1) {
			require.Empty(t, unknownVariables([]string{found[1] + "=x"}), file)
			seen++
		}
		for _, found := range flags.FindAllStringSubmatch(string(text), -1) {
			require.Empty(t, unknownVariables([]string{clientVariable(found[1]) + "=x"}), file)
			if strings.HasPrefix(found[1], "tls-") {
				require.NotContains(t, settings.Variables(), clientVariable(found[1]), "credentials of a user and of a member")
			}
			seen++
		}
	}
	require.Greater(t, seen, 8)
	require.Empty(t, unknownVariables([]string{"PATH=/bin", "LEASED=x", "LEASED_RAFT_LISTEN=x", "LEASED_REDIS_PASSWORD=x",
		"LEASED_TOKEN=7", "LEASED_AUDIT_FILE=-"}))
	require.Equal(t, []unknownVariable{{"LEASED_TLS_KY", "LEASED_TLS_KEY"}, {"LEASED_QQQQQQQQQ", ""}},
		unknownVariables([]string{"LEASED_TLS_KY=x", "LEASED_QQQQQQQQQ=x"}))
}
