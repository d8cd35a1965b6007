package sqlgate

import (
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/leased-project/leased/fencing"
)

// GuardedTable describes a table to guard. The resource of a row is Prefix followed
// by the text of Column.
type GuardedTable struct {
	Table  string
	Column string
	Prefix string
	// AllowUnfenced lets rows be written without a token as long as their resource
	// was never fenced. By default every write needs a token, from the moment the
	// triggers exist.
	AllowUnfenced bool
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
			return "", fmt.Errorf("%w: %.60q is not a valid table or column name; "+
				"use letters, digits and underscores, at most 40", ErrInvalidTable, name)
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
	comment, allow := unfenced(dialect, t.AllowUnfenced)
	return strings.NewReplacer(
		"@TABLE@", t.Table, "@COLUMN@", t.Column, "@COLUMN_NAME@", "'"+t.Column+"'", "@PREFIX@", "'"+t.Prefix+"'",
		"-- @UNFENCED_NOTE@\n", comment, "@ALLOW_UNFENCED@", allow,
		"@INSERT@", "leased_guard_"+t.Table+"_insert", "@UPDATE@", "leased_guard_"+t.Table+"_update",
		"@DELETE@", "leased_guard_"+t.Table+"_delete", "@AFTER_INSERT@", "leased_guard_"+t.Table+"_inserted",
		"@AFTER_UPDATE@", "leased_guard_"+t.Table+"_updated",
	).Replace(string(template)), nil
}

// unfenced returns the comment and the text of @ALLOW_UNFENCED@, which is an
// argument of the trigger in PostgreSQL.
func unfenced(dialect Dialect, allowed bool) (comment, text string) {
	if allowed {
		comment = "-- A resource that was never fenced can be written without a token.\n"
	}
	switch {
	case dialect != Postgres:
		text = strings.ToUpper(strconv.FormatBool(allowed))
	case allowed:
		text = ", 'allow-unfenced'"
	}
	return comment, text
}

// SetMaxJump returns the SQL text that changes the bound on the jump for all fences
// and guards of a database that do not give one. It is for a lock service whose
// tokens have outgrown the default, fencing.DefaultMaxJump. Gates in Go use the
// bound of their Rule instead.
func SetMaxJump(dialect Dialect, bound fencing.Token) (string, error) {
	template, err := schema.ReadFile(path.Join("schema", string(dialect), "max_jump.sql.template"))
	if err != nil {
		return "", fmt.Errorf("%w: %.40q", ErrUnknownDialect, string(dialect))
	}
	if !bound.Valid() {
		return "", fmt.Errorf("%w: the bound %d is not between 1 and %d",
			fencing.ErrInvalidToken, uint64(bound), fencing.MaxToken)
	}
	return strings.ReplaceAll(string(template), "@MAX_JUMP@", bound.String()), nil
}
