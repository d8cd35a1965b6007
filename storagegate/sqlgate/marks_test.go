package sqlgate_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

// requireMark checks the mark of a resource, and that it is the only one.
func requireMark(t *testing.T, s storage, resource fencing.Resource, want fencing.Token) {
	t.Helper()
	mark, err := s.gate(t, fencing.Rule{}).Mark(t.Context(), resource)
	require.NoError(t, err)
	require.Equal(t, want, mark)
	var marks int
	require.NoError(t, s.open(t).QueryRowContext(t.Context(), `SELECT count(*) FROM leased_marks`).Scan(&marks))
	require.Equal(t, 1, marks)
}

// A role that writes the table of the marks directly can neither lower a mark nor create an invalid one, with any
// statement.
func TestPostgresWriterKeepsMarksValid(t *testing.T) {
	s := newStorage(t, sqlgate.Postgres)
	require.NoError(t, s.gate(t, fencing.Rule{}).Enter(t.Context(), "orders", 9))
	createWriter(t, s, "leased_marks")
	const invalid, kept = "23514", "LF005"
	const merge = `MERGE INTO leased_marks m USING (SELECT 'orders' AS resource) o ON m.resource = o.resource `
	for statement, code := range map[string]string{
		`INSERT INTO leased_marks VALUES ('', 1)`:                                                                 invalid,
		`INSERT INTO leased_marks VALUES (repeat('ab', 256) || 'c', 1)`:                                           invalid,
		`INSERT INTO leased_marks VALUES (E'a\nb', 1)`:                                                            invalid,
		`INSERT INTO leased_marks VALUES ('a', -1)`:                                                               invalid,
		`INSERT INTO leased_marks VALUES ('a', 9007199254740992)`:                                                 invalid,
		`INSERT INTO leased_marks VALUES ('a', -1) ON CONFLICT DO NOTHING`:                                        invalid,
		`INSERT INTO leased_marks VALUES ('a', NULL)`:                                                             "23502",
		`SELECT leased_fence('', 1)`:                                                                              invalid,
		`SELECT leased_fence('orders', 9007199254740992, 9007199254740991)`:                                       "LF004",
		`SELECT leased_fence('orders', -9223372036854775807)`:                                                     "LF004",
		`SELECT leased_fence('orders', NULL)`:                                                                     "LF004",
		`UPDATE leased_marks SET mark = 9007199254740992`:                                                         invalid,
		`UPDATE leased_marks SET mark = 8`:                                                                        kept,
		`UPDATE leased_marks SET mark = -1`:                                                                       kept,
		`UPDATE leased_marks SET resource = 'a'`:                                                                  kept,
		`UPDATE leased_marks SET resource = 'a', mark = 10`:                                                       kept,
		`WITH w AS (UPDATE leased_marks SET mark = 8 RETURNING mark) UPDATE leased_marks SET mark = 10 FROM w`:    kept,
		`WITH w AS (UPDATE leased_marks SET mark = 8 RETURNING mark) SELECT leased_fence('orders', mark) FROM w`:  kept,
		`INSERT INTO leased_marks VALUES ('orders', 1) ON CONFLICT (resource) DO UPDATE SET mark = excluded.mark`: kept,
		merge + `WHEN MATCHED THEN UPDATE SET mark = 8`:                                                           kept,
		merge + `AND false WHEN NOT MATCHED THEN INSERT VALUES ('', 8)`:                                           invalid,
		`SET session_replication_role = replica; UPDATE leased_marks SET mark = 8`:                                "42501",
		`ALTER TABLE leased_marks DISABLE TRIGGER ALL`:                                                            "42501",
		`DELETE FROM leased_marks`:                                                                                "42501",
		`TRUNCATE TABLE leased_marks`:                                                                             "42501",
	} {
		err := runBlock(t, s, "SET ROLE shop_writer; "+statement)
		var answer *pgconn.PgError
		require.ErrorAs(t, err, &answer, statement)
		require.Equal(t, code, answer.Code, "%s: %v", statement, err)
	}
	for _, line := range []string{"\t1", "a\t-1", "a\t9007199254740992"} {
		require.ErrorContains(t, copyMark(t, s, line), "invalid mark", line)
	}
	require.ErrorContains(t, runBlock(t, s, `INSERT INTO leased_resets VALUES ('orders', 9, -1);
		UPDATE leased_marks SET mark = -1`), "cannot be lowered", "as the owner")
	requireMark(t, s, "orders", 9)
	require.NoError(t, runBlock(t, s, `SET ROLE shop_writer; UPDATE leased_marks SET resource = resource, mark = 10`))
	requireMark(t, s, "orders", 10)
}

// copyMark copies a line into the marks, as a writer.
func copyMark(t *testing.T, s storage, line string) error {
	t.Helper()
	conn, err := s.open(t).Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), `SET ROLE shop_writer`)
	require.NoError(t, err)
	return conn.Raw(func(driver any) error {
		pg := driver.(*stdlib.Conn).Conn().PgConn()
		_, err := pg.CopyFrom(t.Context(), strings.NewReader(line+"\n"), `COPY leased_marks FROM STDIN`)
		return err
	})
}

// A BEFORE trigger of another name cannot lower a mark behind the trigger that keeps marks.
func TestPostgresKeepsMarksFromOtherTriggers(t *testing.T) {
	s := newStorage(t, sqlgate.Postgres)
	require.NoError(t, s.gate(t, fencing.Rule{}).Enter(t.Context(), "orders", 9))
	execute(t, s, `CREATE FUNCTION lower_it() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN NEW.mark := 8; RETURN NEW; END $$`,
		`CREATE TRIGGER zzz BEFORE UPDATE ON leased_marks FOR EACH ROW EXECUTE FUNCTION lower_it()`)
	require.ErrorContains(t, try(t, s.open(t), `UPDATE leased_marks SET mark = 10`), "cannot be lowered")
	requireMark(t, s, "orders", 9)
}
