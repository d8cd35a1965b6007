package sqlgate

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/leased-project/leased/fencing"
)

// GuardedTable describes a table to guard. The resource of a row is Prefix followed
// by the text of Column.
type GuardedTable struct {
	Table  string
	Column string
	Prefix string
	// MaxJump bounds the tokens in rows, in MySQL and SQLite. 0 means no bound.
	MaxJump fencing.Token
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,39}$`)

// Guard returns the SQL text of triggers that make the table refuse writes that
// were not admitted, even from code that does not use a gate. How a write proves
// its token depends on the dialect; comments in the text explain it.
func Guard(dialect Dialect, t GuardedTable) (string, error) {
	template, err := schema.ReadFile(path.Join("schema", string(dialect), "guard.sql.template"))
	if err != nil {
		return "", fmt.Errorf("%w: %.40q", ErrUnknownDialect, string(dialect))
	}
	for _, name := range []string{t.Table, t.Column} {
		if !identifier.MatchString(name) {
			return "", fmt.Errorf("%w: %.60q is not a valid table or column name; use letters, digits and underscores, at most 40", ErrInvalidTable, name)
		}
	}
	if t.Prefix != "" {
		if err := fencing.Resource(t.Prefix).Validate(); err != nil {
			return "", fmt.Errorf("%w: prefix: %w", ErrInvalidTable, err)
		}
	}
	if strings.ContainsAny(t.Prefix, `'\`) {
		return "", fmt.Errorf("%w: the prefix %.60q has a quote or a backslash", ErrInvalidTable, t.Prefix)
	}
	if _, err := t.MaxJump.Value(); err != nil {
		return "", fmt.Errorf("%w: bound: %w", ErrInvalidTable, err)
	}
	return strings.NewReplacer(
		"@TABLE@", t.Table, "@COLUMN@", t.Column, "@COLUMN_NAME@", "'"+t.Column+"'", "@PREFIX@", "'"+t.Prefix+"'",
		"@MAX_JUMP@", t.MaxJump.String(),
		"@INSERT@", "leased_guard_"+t.Table+"_insert", "@UPDATE@", "leased_guard_"+t.Table+"_update",
		"@DELETE@", "leased_guard_"+t.Table+"_delete", "@AFTER_INSERT@", "leased_guard_"+t.Table+"_inserted",
		"@AFTER_UPDATE@", "leased_guard_"+t.Table+"_updated",
	).Replace(string(template)), nil
}
