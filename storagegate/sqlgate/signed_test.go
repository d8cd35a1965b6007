package sqlgate_test

import (
	"bytes"
	"crypto/ed25519"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/fencing/signature"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

// newSignedStorage creates a storage with the schema for signed tokens.
func newSignedStorage(t testing.TB) storage {
	t.Helper()
	s := newStorage(t, sqlgate.Postgres)
	text, err := sqlgate.SignedDDL(sqlgate.Postgres)
	require.NoError(t, err)
	execute(t, s, text, text) // running it again changes nothing
	return s
}

func newSigner(t testing.TB, seed byte) *signature.Signer {
	t.Helper()
	signer, err := signature.NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)))
	require.NoError(t, err)
	return signer
}

// verify verifies a signature in the database.
func verify(t testing.TB, db *sql.DB, key, message, signature []byte) bool {
	t.Helper()
	var valid bool
	require.NoError(t, db.QueryRow(`SELECT leased_ed25519_verify($1, $2, $3)`, key, message, signature).Scan(&valid))
	return valid
}

// groupOrder is the order L of the base point.
var groupOrder, _ = new(big.Int).SetString(
	"7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)

// number converts little-endian bytes.
func number(b []byte) *big.Int {
	b = slices.Clone(b)
	slices.Reverse(b)
	return new(big.Int).SetBytes(b)
}

// littleEndian returns 32 bytes.
func littleEndian(n *big.Int) []byte {
	b := n.FillBytes(make([]byte, 32))
	slices.Reverse(b)
	return b
}

// TestEd25519Vectors runs the vectors of RFC 8032, section 7.1.
func TestEd25519Vectors(t *testing.T) {
	db := newSignedStorage(t).open(t)
	for _, v := range []struct{ key, message, signature string }{
		{"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
			"e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"},
		{"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
			"92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"},
		{"fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
			"6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"},
	} {
		key, message, signature := unhex(t, v.key), unhex(t, v.message), unhex(t, v.signature)
		require.True(t, ed25519.Verify(key, message, signature), "the vector is copied correctly")
		require.True(t, verify(t, db, key, message, signature))
		require.False(t, verify(t, db, key, append(message, 0), signature))
	}
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	require.NoError(t, err)
	return b
}

// TestEd25519AgreesWithGo compares valid and changed signatures of random keys.
func TestEd25519AgreesWithGo(t *testing.T) {
	db := newSignedStorage(t).open(t)
	random := rand.New(rand.NewPCG(1, 2))
	bytesOf := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	for range 12 {
		private := ed25519.NewKeyFromSeed(bytesOf(ed25519.SeedSize))
		key, message := slices.Clone([]byte(private.Public().(ed25519.PublicKey))), bytesOf(random.IntN(200))
		signature := ed25519.Sign(private, message)
		require.True(t, verify(t, db, key, message, signature), "key %x message %x", key, message)
		for _, part := range [][]byte{signature[:32], signature[32:], key} {
			i, bit := random.IntN(32), byte(1)<<random.IntN(8)
			part[i] ^= bit
			require.Equal(t, ed25519.Verify(key, message, signature), verify(t, db, key, message, signature),
				"key %x message %x signature %x", key, message, signature)
			part[i] ^= bit
		}
		malleable := append(slices.Clone(signature[:32]),
			littleEndian(new(big.Int).Add(number(signature[32:]), groupOrder))...)
		require.False(t, verify(t, db, key, message, malleable), "S must be below the order of the group")
	}
}

func TestEd25519RefusesBadInput(t *testing.T) {
	db := newSignedStorage(t).open(t)
	signer := newSigner(t, 1)
	signature := make([]byte, ed25519.SignatureSize)
	p := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	minusZero := littleEndian(big.NewInt(1))
	minusZero[31] |= 0x80
	for name, key := range map[string][]byte{
		"not on the curve":     littleEndian(big.NewInt(2)),
		"y is p":               littleEndian(p),
		"y is above p":         littleEndian(new(big.Int).Add(p, big.NewInt(1))),
		"x is 0 with the sign": minusZero,
		"too short":            make([]byte, 31),
		"too long":             make([]byte, 33),
		"empty":                {},
	} {
		require.False(t, verify(t, db, key, []byte{}, signature), name)
		var id string
		require.Equal(t, "LF008", codeOf(db.QueryRow(`SELECT leased_trust_key($1)`, hex.EncodeToString(key)).Scan(&id)), name)
	}
	for _, n := range []int{0, 63, 65} {
		require.False(t, verify(t, db, signer.PublicKey(), []byte{}, make([]byte, n)), "a signature of %d bytes", n)
	}
}

// codeOf returns the SQLSTATE of an error.
func codeOf(err error) string {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return fmt.Sprint(err)
	}
	return e.Code
}

// signedCase is a storage with a guarded table, and a writer without rights on the
// tables of leased.
type signedCase struct {
	*testing.T
	owner, writer *sql.DB
	signer        *signature.Signer
}

func newSignedCase(t *testing.T) *signedCase {
	t.Helper()
	s := newSignedStorage(t)
	c := &signedCase{T: t, owner: s.open(t), signer: newSigner(t, 1)}
	guard, err := sqlgate.SignedGuard(sqlgate.Postgres, sqlgate.GuardedTable{Table: "contents", Column: "resource"})
	require.NoError(t, err)
	name := "writer_" + s.dsn[strings.LastIndex(s.dsn, "_")+1:]
	for _, statement := range []string{guard, `CREATE ROLE ` + name + ` LOGIN`,
		`GRANT USAGE ON SCHEMA ` + s.dsn[strings.LastIndex(s.dsn, "=")+1:] + ` TO ` + name,
		`GRANT SELECT, INSERT, UPDATE, DELETE ON contents TO ` + name} {
		_, err := c.owner.Exec(statement)
		require.NoError(t, err, statement)
	}
	c.trust(c.signer)
	s.dsn = strings.Replace(s.dsn, "postgres@", name+"@", 1)
	c.writer = s.open(t)
	return c
}

func (c *signedCase) trust(signer *signature.Signer) {
	c.Helper()
	var id string
	require.NoError(c, c.owner.QueryRow(`SELECT leased_trust_key($1)`, hex.EncodeToString(signer.PublicKey())).Scan(&id))
	require.Equal(c, signer.KeyID(), id)
}

func (c *signedCase) sign(resource fencing.Resource, token fencing.Token, ttl time.Duration) string {
	c.Helper()
	text, err := c.signer.Sign(resource, token, time.Now().Add(ttl))
	require.NoError(c, err)
	return text
}

// write writes a row in a transaction that begins with some statements, and returns
// the SQLSTATE of the first failure, or "".
func (c *signedCase) write(resource, value string, first string, args ...any) string {
	c.Helper()
	tx, err := c.writer.Begin()
	require.NoError(c, err)
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec(first, args...); err != nil {
		return codeOf(err)
	}
	_, err = tx.Exec(`INSERT INTO contents VALUES ($1, $2)
		ON CONFLICT (resource) DO UPDATE SET value = excluded.value`, resource, value)
	if err != nil {
		return codeOf(err)
	}
	require.NoError(c, tx.Commit())
	return ""
}

func (c *signedCase) fenced(resource, text, value string) string {
	c.Helper()
	return c.write(resource, value, `SELECT leased_fence_signed($1, $2)`, resource, text)
}

func (c *signedCase) value(resource string) (value string) {
	c.Helper()
	err := c.owner.QueryRow(`SELECT value FROM contents WHERE resource = $1`, resource).Scan(&value)
	if !errors.Is(err, sql.ErrNoRows) {
		require.NoError(c, err)
	}
	return value
}

// A writer without rights on the marks writes with a signed token, and raises no mark
// without one.
func TestSignedTokensInPostgres(t *testing.T) {
	c := newSignedCase(t)
	first := c.sign("orders/ä", 7, time.Hour)
	dot := strings.LastIndex(first, ".")
	for name, text := range map[string]string{
		"a number":             "7",
		"the largest token":    fencing.MaxToken.String(),
		"empty":                "",
		"with a line break":    first + "\n",
		"another token":        strings.Replace(first, ".7.", ".8.", 1),
		"for another resource": c.sign("orders/b", 7, time.Hour),
		"expired":              c.sign("orders/ä", 7, -time.Second),
		"unused bits":          first[:len(first)-1] + string("BRhx"[strings.IndexByte("AQgw", first[len(first)-1])]),
		"zeros":                first[:dot+1] + strings.Repeat("A", 86),
	} {
		require.Equal(t, "LF008", c.fenced("orders/ä", text, "bad"), name)
	}
	require.Empty(t, c.value("orders/ä"))

	require.Empty(t, c.fenced("orders/ä", first, "one"))
	require.Empty(t, c.fenced("orders/ä", first, "two"), "compared with the verified text")
	require.Empty(t, c.fenced("orders/ä", c.sign("orders/ä", 7, 2*time.Hour), "three"), "signed again")
	require.Empty(t, c.fenced("orders/ä", c.sign("orders/ä", 8, time.Hour), "four"))
	require.Equal(t, "LF001", c.fenced("orders/ä", first, "stale"), "the lease was lost; its signature is still valid")
	require.Equal(t, "four", c.value("orders/ä"))

	const denied = "42501"
	require.Equal(t, denied, c.write("orders/ä", "x", `SELECT leased_fence('orders/ä', 9007199254740991)`))
	require.Equal(t, denied, c.write("orders/ä", "x", `UPDATE leased_marks SET mark = 9007199254740991`))
	require.Equal(t, denied, c.write("orders/ä", "x", `SELECT * FROM leased_signed`))
	require.Equal(t, denied, c.write("orders/ä", "x", `SELECT leased_trust_key('00')`))
	require.Equal(t, "LF002", c.write("orders/ä", "x", `SELECT 1`), "the table is guarded")
	for _, setting := range []string{"8 orders/ä", first + " orders/ä"} {
		require.Equal(t, "LF002", c.write("orders/ä", "x",
			`SELECT set_config('leased.claims', $1, true), set_config('leased.signed', $1, true)`, setting+"\n"))
	}
	require.Equal(t, "four", c.value("orders/ä"))
}

// A temporary table of the writer does not replace the keys or the marks.
func TestSignedTokensIgnoreTemporaryTables(t *testing.T) {
	c := newSignedCase(t)
	_, err := c.owner.Exec(`GRANT TEMPORARY ON DATABASE postgres TO PUBLIC`)
	require.NoError(t, err)
	forger := newSigner(t, 2)
	forged, err := forger.Sign("orders", 1<<40, time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Equal(t, "LF008", c.write("orders", "forged",
		fmt.Sprintf(`CREATE TEMPORARY TABLE leased_keys AS SELECT '%s'::text AS id, '\x%x'::bytea AS public_key; `,
			forger.KeyID(), forger.PublicKey())+
			fmt.Sprintf(`SELECT leased_fence_signed('orders', '%s')`, forged)))
	require.Empty(t, c.value("orders"))
}

// Casts and domains of a writer can run functions of the writer. They must not run with the
// rights of the owner.
func TestSignedTokensRunNoCodeOfWriters(t *testing.T) {
	c := newSignedCase(t)
	_, err := c.owner.Exec(`GRANT TEMPORARY ON DATABASE postgres TO PUBLIC`)
	require.NoError(t, err)
	// An installation from before the guard ran with the rights of the writer.
	_, err = c.owner.Exec(`ALTER FUNCTION leased_guard_signed() SECURITY DEFINER`)
	require.NoError(t, err)
	text, err := sqlgate.SignedDDL(sqlgate.Postgres)
	require.NoError(t, err)
	_, err = c.owner.Exec(text)
	require.NoError(t, err)
	var schema string
	require.NoError(t, c.owner.QueryRow(`SELECT current_schema()`).Scan(&schema))
	c.writer.SetMaxIdleConns(0) // each case has a session of its own
	const trap = `
		CREATE FUNCTION pg_temp.run() RETURNS void LANGUAGE plpgsql AS $$
		BEGIN
			IF has_table_privilege('@.leased_keys', 'INSERT') THEN
				RAISE EXCEPTION 'runs with the rights of the owner';
			END IF;
		END $$;`
	for name, test := range map[string]struct{ prepare, run, code string }{
		"a cast of a column of a table with a guard": {
			`CREATE TYPE pg_temp.mine AS ENUM ('a');
			CREATE FUNCTION pg_temp.mine_to_json(pg_temp.mine) RETURNS json LANGUAGE plpgsql AS $$
				BEGIN PERFORM pg_temp.run(); RETURN '1'::json; END $$;
			CREATE CAST (pg_temp.mine AS json) WITH FUNCTION pg_temp.mine_to_json(pg_temp.mine);
			CREATE TEMPORARY TABLE guarded (id int, other pg_temp.mine);
			CREATE TRIGGER guard AFTER INSERT ON guarded FOR EACH ROW EXECUTE FUNCTION @.leased_guard_signed('x/', 'id');`,
			`INSERT INTO guarded VALUES (1, 'a')`, "LF002",
		},
		// PL/pgSQL looks up the types of variables when a session calls a function for the first time.
		"a domain with the name of a built-in type": {
			`CREATE FUNCTION pg_temp.check(pg_catalog.text) RETURNS boolean LANGUAGE plpgsql AS $$
				BEGIN PERFORM pg_temp.run(); RETURN true; END $$;
			CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (pg_temp.check(VALUE));
			SET search_path = pg_temp, pg_catalog, @;
			DO $$ BEGIN PERFORM @.leased_verify('orders', ''); EXCEPTION WHEN OTHERS THEN END $$;
			DO $$ BEGIN PERFORM @.leased_fence('orders', 0); EXCEPTION WHEN OTHERS THEN END $$;
			DO $$ BEGIN PERFORM @.leased_try('orders', 0); EXCEPTION WHEN OTHERS THEN END $$;`,
			`SELECT @.leased_fence_signed('orders', '` + c.sign("orders", 7, time.Hour) + `')`, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := c.writer.Conn(t.Context())
			require.NoError(t, err)
			defer conn.Close()
			_, err = conn.ExecContext(t.Context(), strings.ReplaceAll(trap+test.prepare, "@", schema))
			require.NoError(t, err)
			_, err = conn.ExecContext(t.Context(), strings.ReplaceAll(test.run, "@", schema))
			if test.code == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, test.code, codeOf(err), err)
		})
	}
}

// Operators of other users must not run with the rights of the owner.
func TestSignedTokensNeedAClosedSchema(t *testing.T) {
	s := newStorage(t, sqlgate.Postgres)
	text, err := sqlgate.SignedDDL(sqlgate.Postgres)
	require.NoError(t, err)
	schema := s.dsn[strings.LastIndex(s.dsn, "=")+1:]
	execute(t, s, `GRANT CREATE ON SCHEMA `+schema+` TO PUBLIC`)
	revoke := `REVOKE CREATE ON SCHEMA ` + schema + ` FROM PUBLIC`
	require.ErrorContains(t, runBlock(t, s, text), revoke)
	execute(t, s, revoke)
	require.NoError(t, runBlock(t, s, text))
}

// Old signed tokens are valid while the old key is in the set, verified or not.
func TestKeyRotationInPostgres(t *testing.T) {
	c := newSignedCase(t)
	before, after := c.signer, newSigner(t, 2)
	old := c.sign("orders", 7, time.Hour)
	require.Empty(t, c.fenced("orders", old, "one"))
	c.signer = after
	young := c.sign("orders", 7, time.Hour)
	require.Equal(t, "LF008", c.fenced("orders", young, "bad"), "the database must know the key before the members use it")
	c.trust(after)
	require.Empty(t, c.fenced("orders", young, "two"))
	require.Empty(t, c.fenced("orders", old, "three"))
	_, err := c.owner.Exec(`SELECT leased_distrust_key($1)`, before.KeyID())
	require.NoError(t, err)
	require.Equal(t, "LF008", c.fenced("orders", old, "bad"), "also if it was verified before")
	require.Equal(t, "LF002", c.write("orders", "bad", `SELECT set_config('leased.signed', $1, true)`, old+" orders\n"),
		"the guard does not trust the key either")
	require.Empty(t, c.fenced("orders", young, "four"))
	require.Equal(t, "four", c.value("orders"))
}

// A signed token that was verified before is compared with the verified text only for its own
// resource, and only until it expires.
func TestVerifiedTokensAreBound(t *testing.T) {
	c := newSignedCase(t)
	text := c.sign("orders/a", 7, time.Hour)
	require.Empty(t, c.fenced("orders/a", text, "one"))

	_, err := c.owner.Exec(`SELECT leased_fence_signed('orders/b', $1)`, text)
	require.Equal(t, "LF008", codeOf(err), "it was signed and verified for another resource")
	var marks int
	require.NoError(t, c.owner.QueryRow(`SELECT count(*) FROM leased_marks WHERE resource = 'orders/b'`).Scan(&marks))
	require.Zero(t, marks, "it has raised no mark")

	tx, err := c.writer.Begin()
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.Exec(`SELECT leased_fence_signed('orders/a', $1)`, text)
	require.NoError(t, err)
	_, err = c.owner.Exec(`UPDATE leased_signed SET expires = 1`) // an hour has passed
	require.NoError(t, err)
	_, err = tx.Exec(`UPDATE contents SET value = 'late' WHERE resource = 'orders/a'`)
	require.Equal(t, "LF002", codeOf(err), "the guard checks the expiry, too")
	require.Equal(t, "LF008", c.fenced("orders/a", text, "late"), "it has expired since it was verified")
	require.Equal(t, "one", c.value("orders/a"))
}

func TestOtherDatabasesCannotVerify(t *testing.T) {
	for _, dialect := range []sqlgate.Dialect{sqlgate.MySQL, sqlgate.SQLite} {
		_, err := sqlgate.SignedDDL(dialect)
		require.ErrorIs(t, err, sqlgate.ErrCannotVerify)
		_, err = sqlgate.SignedGuard(dialect, sqlgate.GuardedTable{Table: "t", Column: "c"})
		require.ErrorIs(t, err, sqlgate.ErrCannotVerify)
	}
	_, err := sqlgate.SignedGuard(sqlgate.Postgres, sqlgate.GuardedTable{Table: "t", Column: "c", AllowUnfenced: true})
	require.ErrorIs(t, err, sqlgate.ErrInvalidTable)
}

// BenchmarkSignedFence compares the first write with a signed token, which verifies
// it, with later ones, and with a token that has no signature.
func BenchmarkSignedFence(b *testing.B) {
	s := newSignedStorage(b)
	db, signer := s.open(b), newSigner(b, 1)
	_, err := db.Exec(`SELECT leased_trust_key($1)`, hex.EncodeToString(signer.PublicKey()))
	require.NoError(b, err)
	token := fencing.Token(0)
	text := ""
	sign := func() {
		token++
		text, err = signer.Sign("orders", token, time.Now().Add(time.Hour))
		require.NoError(b, err)
	}
	// The least time depends less on the load of the machine than the mean.
	run := func(name string, prepare func(), statement string, argument func() any) {
		b.Run(name, func(b *testing.B) {
			least := time.Hour
			for b.Loop() {
				prepare()
				start := time.Now()
				_, err := db.Exec(statement, argument())
				least = min(least, time.Since(start))
				require.NoError(b, err)
			}
			b.ReportMetric(float64(least.Nanoseconds()), "least-ns/op")
		})
	}
	run("verify", sign, `SELECT leased_fence_signed('orders', $1)`, func() any { return text })
	run("verified before", func() {}, `SELECT leased_fence_signed('orders', $1)`, func() any { return text })
	run("without signature", func() {}, `SELECT leased_fence('orders', $1)`, func() any { return int64(token) })
}
