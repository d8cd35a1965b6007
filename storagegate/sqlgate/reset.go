package sqlgate

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/sqlgate/internal/pgsql"
)

// resets are the statements that lower a mark.
var resets = map[Dialect]string{
	Postgres: `SELECT leased_reset($1, $2, $3)`,
	MySQL:    `CALL leased_reset(CAST(? AS BINARY), ?, ?)`,
	SQLite:   `INSERT INTO leased_reset (resource, expected, mark) VALUES (?, ?, ?)`,
}

func (g *Gate) lower(ctx context.Context, resource fencing.Resource, expected, to fencing.Token) error {
	err := pgsql.Run(ctx, g.dialect.explain, func() error { return g.lowerOnce(ctx, resource, expected, to) }, nil)
	if err != nil && !errors.Is(err, storagegate.ErrMarkChanged) {
		return fmt.Errorf("reset the mark of %q: %w", string(resource), err)
	}
	return err
}

func (g *Gate) lowerOnce(ctx context.Context, resource fencing.Resource, expected, to fencing.Token) error {
	var options *sql.TxOptions
	if g.dialect == Postgres {
		options = readCommitted // waits for a writer and then sees what it wrote
	}
	tx, err := g.db.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, resets[g.dialect], string(resource), int64(expected), int64(to)); err != nil {
		_ = tx.Rollback() // frees the connection
		if mark, markErr := g.mark(ctx, resource); markErr == nil && mark != expected {
			return storagegate.CompareMark(resource, mark, expected)
		}
		return err
	}
	return g.commit(tx)
}

// ResetSQL returns the SQL text of Reset for psql, mariadb or sqlite3.
func ResetSQL(dialect Dialect, resource fencing.Resource, expected, to fencing.Token) (string, error) {
	if err := storagegate.ValidateReset(resource, expected, to); err != nil {
		return "", err
	}
	name := "'" + strings.ReplaceAll(string(resource), "'", "''") + "'"
	var statements string
	switch dialect {
	case Postgres:
		statements = "BEGIN;\nSELECT leased_reset(%s, %d, %d);\nCOMMIT;\n"
	case MySQL: // in hex, because the meaning of a backslash depends on the mode
		name = "CONVERT(0x" + hex.EncodeToString([]byte(resource)) + " USING utf8mb4)"
		statements = "START TRANSACTION;\nCALL leased_reset(%s, %d, %d);\nCOMMIT;\n"
	case SQLite:
		statements = "INSERT INTO leased_reset (resource, expected, mark) VALUES (%s, %d, %d);\n"
	default:
		return "", fmt.Errorf("%w: %.40q", ErrUnknownDialect, string(dialect))
	}
	return fmt.Sprintf("-- Lower the mark of %s from %d to %d.\n",
		resource, expected, to) + fmt.Sprintf(statements, name, expected, to), nil
}
