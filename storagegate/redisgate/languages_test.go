package redisgate

import (
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update-languages", false, "rewrite the scripts in the clients for other languages")

// The clients for Python and TypeScript have the same scripts and the same list of commands.
func TestClientsInOtherLanguagesHaveTheScripts(t *testing.T) {
	scripts := []struct{ name, source string }{
		{"ENTER", enterScript.source}, {"WRITE", writeScript.source}, {"CUSTOM", fenceLua + customLua},
	}
	var python, typescript strings.Builder
	const notice = "The scripts of storagegate/redisgate: go test ./storagegate/redisgate -run OtherLanguages " +
		"-update-languages"
	python.WriteString(`"""` + notice + `"""` + "\n\n")
	typescript.WriteString("/** " + notice + " */\n\n")
	for _, s := range scripts {
		require.NotContains(t, s.source, `'''`)
		require.False(t, strings.ContainsAny(s.source, "`$\\"))
		python.WriteString(s.name + " = '''" + s.source + "'''\n\n")
		typescript.WriteString("export const " + s.name + " = `" + s.source + "`;\n\n")
	}
	for _, list := range []struct {
		name     string
		commands map[string]bool
	}{{"ONE_KEY", oneKey}, {"KEYS_ONLY", keysOnly}} {
		words := wrap(slices.Sorted(maps.Keys(list.commands)))
		python.WriteString(list.name + " = frozenset('''\n" + words + "'''.split())\n")
		typescript.WriteString("export const " + list.name + ": ReadonlySet<string> = new Set(`\n" + words +
			"`.trim().split(/\\s+/));\n")
	}
	for path, want := range map[string]string{
		"../../sdk/python/src/leased/_lua.py": python.String(),
		"../../sdk/typescript/src/lua.ts":     typescript.String(),
	} {
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		}
		have, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, string(have), "%s is outdated; run the command in its first line", path)
	}
}

// wrap joins words to lines of less than 100 characters.
func wrap(words []string) string {
	var text, line string
	for _, word := range words {
		if len(line)+len(word) > 98 {
			text, line = text+strings.TrimSpace(line)+"\n", ""
		}
		line += word + " "
	}
	return text + strings.TrimSpace(line) + "\n"
}
