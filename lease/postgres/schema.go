package postgres

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed schema/*.sql
var schema embed.FS

// DDL returns the statements that create the tables and functions in the current schema, as
// one transaction. Running them again changes nothing, and waits for no transaction that uses locks.
func DDL() string {
	var b strings.Builder
	b.WriteString("BEGIN;\n")
	files, err := fs.Glob(schema, "schema/*.sql")
	if err != nil {
		panic(err) // the pattern is valid
	}
	for _, name := range files {
		text, err := schema.ReadFile(name)
		if err != nil {
			panic(err) // the file is embedded
		}
		b.Write(text)
	}
	b.WriteString("COMMIT;\n")
	return b.String()
}
