// Package recipes_test contains the Go recipes of docs/GATES.md and
// docs/GATES-services.md as code: each block there is part of a function here, word
// for word. The tests run the recipes whose storage starts quickly.
package recipes_test

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate/httpgate"
)

func TestEveryRecipeIsCode(t *testing.T) {
	var text string
	for _, page := range []string{"GATES.md", "GATES-services.md"} {
		content, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
		require.NoError(t, err)
		text += string(content)
	}
	names, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var sources strings.Builder
	for _, name := range names {
		source, err := os.ReadFile(name)
		require.NoError(t, err)
		sources.Write(source)
	}
	blocks := strings.Split(text, "```go\n")[1:]
	require.Greater(t, len(blocks), 12)
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		inside := ""
		for line := range strings.Lines(block) {
			if strings.TrimSpace(line) != "" {
				inside += "\t"
			}
			inside += line
		}
		if !strings.Contains(sources.String(), inside) && !strings.Contains(sources.String(), block) {
			require.Fail(t, "no function of this package contains this block of the docs", block)
		}
	}
}

// requireFences runs a recipe for the holder of token 34, and then for the paused
// holder of token 33.
func requireFences(t *testing.T, recipe func(token fencing.Token) error) {
	t.Helper()
	require.NoError(t, recipe(34))
	require.NoError(t, recipe(34))
	require.ErrorIs(t, recipe(33), fencing.ErrStale)
	require.NoError(t, recipe(35))
}

const accounts = `CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL);
	INSERT INTO accounts VALUES (7, 100)`

func TestPostgresRecipes(t *testing.T) {
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, testserver.Postgres(t).DSN)
	require.NoError(t, err)
	defer pool.Close()
	_, err = pool.Exec(ctx, accounts)
	require.NoError(t, err)
	requireFences(t, func(token fencing.Token) error { return withPGX(ctx, pool, token) })
	var balance int
	require.NoError(t, pool.QueryRow(ctx, `SELECT balance FROM accounts`).Scan(&balance))
	require.Equal(t, 100-3*30, balance, "three runs of three writes each")
}

func TestSQLiteRecipe(t *testing.T) {
	t.Chdir(t.TempDir())
	requireFences(t, func(token fencing.Token) error {
		return withSQLite(t.Context(), token, func(db *sql.DB) {
			_, _ = db.ExecContext(t.Context(), accounts) // it exists the second time
		})
	})
}

func TestBoltRecipe(t *testing.T) {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "app.db"), 0o600, nil)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket([]byte("accounts"))
		return err
	}))
	requireFences(t, func(token fencing.Token) error { return withBolt(t.Context(), db, token) })
}

func TestFileRecipe(t *testing.T) {
	dir := t.TempDir()
	requireFences(t, func(token fencing.Token) error {
		return withFiles(t.Context(), dir, map[string]int{"total": 3}, token)
	})
}

func TestMemoryRecipe(t *testing.T) {
	ctx := t.Context()
	require.NoError(t, inMemory(ctx, 34))
}

func TestRedisRecipes(t *testing.T) {
	addr := testserver.Redis(t, testserver.RedisAppendOnly()).Addr
	requireFences(t, func(token fencing.Token) error { return withRedis(t.Context(), addr, token) })
}

func TestHTTPRecipe(t *testing.T) {
	t.Chdir(t.TempDir())
	mux := http.NewServeMux()
	closeMarks, err := withHTTP(mux, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	require.NoError(t, err)
	defer closeMarks()
	server := httptest.NewServer(mux)
	defer server.Close()
	requireFences(t, func(token fencing.Token) error {
		return callHTTP(context.WithoutCancel(t.Context()), server.URL+"/orders/42", token)
	})
	response, err := http.Post(server.URL+"/orders/42", "", nil)
	require.NoError(t, err)
	defer response.Body.Close()
	require.ErrorIs(t, httpgate.Check(response), fencing.ErrNoToken)
}
