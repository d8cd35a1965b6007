package sqlgate

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// schema contains numbered migrations and the template of a guard for each
// dialect.
//
//go:embed schema
var schema embed.FS

// Migration is one file of the schema. Running it again has no effect.
type Migration struct {
	Name, SQL string
}

// Migrations returns the files of a dialect's schema in order, for programs with
// their own migrations.
func Migrations(dialect Dialect) ([]Migration, error) {
	if _, ok := dialects[dialect]; !ok {
		return nil, fmt.Errorf("%w: %.40q", ErrUnknownDialect, string(dialect))
	}
	return migrations(path.Join("schema", string(dialect), "*.sql"))
}

// migrations reads the files of the schema that match a pattern.
func migrations(pattern string) ([]Migration, error) {
	names, err := fs.Glob(schema, pattern)
	if err != nil {
		return nil, err
	}
	all := make([]Migration, len(names))
	for i, name := range names {
		text, err := schema.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all[i] = Migration{Name: path.Base(name), SQL: string(text)}
	}
	return all, nil
}

// DDL returns the schema of a dialect as text for psql, mariadb or sqlite3. For PostgreSQL it
// is one transaction, so that psql installs nothing after an error.
func DDL(dialect Dialect) (string, error) {
	all, err := Migrations(dialect)
	return concatenated(dialect, all), err
}

func concatenated(dialect Dialect, all []Migration) string {
	texts := make([]string, len(all))
	for i, m := range all {
		texts[i] = m.SQL
	}
	text := strings.Join(texts, "\n")
	if dialect == Postgres { // waits for another installation, and then sees what that has created
		text = "BEGIN ISOLATION LEVEL READ COMMITTED;\n" + text + "COMMIT;\n"
	}
	return text
}

// Install creates the table for marks, its functions and its triggers if they are
// missing. It can run in several processes at once, beside writers, and at every
// start of a program. It needs the right to create tables, which writers do not
// need.
func (g *Gate) Install(ctx context.Context) error {
	migrations, err := Migrations(g.dialect)
	if err != nil {
		return err
	}
	conn, err := g.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("install the marks: %w", err)
	}
	defer conn.Close()
	if g.dialect == MySQL { // DDL is not transactional
		if err := runMySQL(ctx, conn, migrations); err != nil {
			return fmt.Errorf("install the marks: %w", err)
		}
		return nil
	}
	var options *sql.TxOptions
	if g.dialect == Postgres {
		options = readCommitted // as in DDL
	}
	tx, err := conn.BeginTx(ctx, options)
	if err != nil {
		return fmt.Errorf("install the marks: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, m := range migrations {
		if _, err := tx.ExecContext(ctx, m.SQL); err != nil {
			return fmt.Errorf("install the marks: run %s: %w", m.Name, err)
		}
	}
	return tx.Commit()
}

// installedMySQL counts the procedures of this version and the triggers. If all
// exist, they are not created again: that would wait for every open transaction
// that has used them, and block all others meanwhile.
const (
	installedMySQL = `SELECT
		(SELECT count(*) FROM information_schema.routines
			WHERE routine_schema = DATABASE() AND routine_comment = 'leased 3') +
		(SELECT count(*) FROM information_schema.triggers
			WHERE trigger_schema = DATABASE() AND trigger_name IN ('leased_keep_mark_update', 'leased_keep_mark_delete'))`
	objectsMySQL = 9
)

func runMySQL(ctx context.Context, conn *sql.Conn, migrations []Migration) error {
	var got sql.NullInt64
	if err := conn.QueryRowContext(ctx, `SELECT GET_LOCK('leased_marks', 60)`).Scan(&got); err != nil {
		return err
	}
	if got.Int64 != 1 {
		return errors.New("another process has been installing for a minute; try again")
	}
	defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), `DO RELEASE_LOCK('leased_marks')`) }()
	var objects int
	if err := conn.QueryRowContext(ctx, installedMySQL).Scan(&objects); err != nil {
		return err
	}
	if objects == objectsMySQL {
		return nil
	}
	for _, m := range migrations {
		for _, statement := range SplitMySQL(m.SQL) {
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("run %s: %w", m.Name, err)
			}
		}
	}
	return nil
}

// SplitMySQL splits the text of DDL or Guard into statements for a driver.
// DELIMITER is a command of the command line client only.
func SplitMySQL(text string) []string {
	var all []string
	delimiter, current := ";", ""
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		if word, rest, _ := strings.Cut(trimmed, " "); word == "DELIMITER" {
			delimiter = rest
			continue
		}
		if strings.HasPrefix(trimmed, "--") && strings.TrimSpace(current) == "" {
			continue
		}
		current += line
		if strings.HasSuffix(trimmed, delimiter) {
			statement := strings.TrimSuffix(strings.TrimSpace(current), delimiter)
			all = append(all, strings.TrimSpace(statement))
			current = ""
		}
	}
	return all
}
