package model_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestModelIsIndependent checks that the model imports only the types of names, tokens,
// requests and policies from this project: an oracle that shares code with what it
// checks shares its errors.
func TestModelIsIndependent(t *testing.T) {
	const project = "github.com/leased-project/leased/"
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	seen := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		seen++
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			ours, inside := strings.CutPrefix(path, project)
			require.True(t, inside && slices.Contains([]string{"fencing", "lease/engine"}, ours) || !strings.Contains(path, "."),
				"%s imports %s", name, path)
		}
	}
	require.NotZero(t, seen)
}
