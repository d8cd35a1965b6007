package model_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/postgres"
	"github.com/leased-project/leased/proptest/model"
)

// Locks in PostgreSQL follow the rules of the model, as far as they have them: exclusive leases
// and sets, queues, repeated and late attempts, releases and breaks.
func TestPostgresAgreesWithTheModel(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	conn, err := pgx.Connect(ctx, testserver.Postgres(t).DSN)
	require.NoError(t, err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, postgres.DDL())
	require.NoError(t, err)
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		newInPostgres(ctx, conn, run).run(t)
	})
}

// inPostgres applies the same calls to a database and to the model.
type inPostgres struct {
	ctx     context.Context
	conn    *pgx.Conn
	model   *model.Model
	session model.Session
	prefix  string // of the locks and attempts of this run

	requests map[engine.Nonce]engine.Request // that were sent
	denied   map[engine.Nonce]bool           // they did not wait, so their outcome is final
	tokens   map[engine.Nonce]int64
	last     map[fencing.Resource]int64 // the newest token
}

func newInPostgres(ctx context.Context, conn *pgx.Conn, run int) *inPostgres {
	p := &inPostgres{ctx: ctx, conn: conn, model: model.New(), prefix: fmt.Sprintf("run %d/", run),
		requests: map[engine.Nonce]engine.Request{},
		denied:   map[engine.Nonce]bool{}, tokens: map[engine.Nonce]int64{}, last: map[fencing.Resource]int64{}}
	id := engine.NewSessionID()
	opened := p.model.OpenSession(id, time.Hour)
	p.session = model.Session{ID: id, Incarnation: opened.Incarnation}
	return p
}

func (p *inPostgres) locks() (names []fencing.Resource) {
	for _, name := range []string{"a", "b", "c"} {
		names = append(names, fencing.Resource(p.prefix+name))
	}
	return names
}

func (p *inPostgres) attempt(nonce engine.Nonce) string {
	return fmt.Sprintf("%sattempt %08d", p.prefix, nonce)
}

func (p *inPostgres) run(t *rapid.T) {
	sent := engine.Nonce(0)
	earlier := func() engine.Nonce { return engine.Nonce(rapid.Uint64Range(1, uint64(sent)+1).Draw(t, "nonce")) }
	for range rapid.IntRange(1, 25).Draw(t, "steps") {
		switch rapid.IntRange(0, 5).Draw(t, "step") {
		case 0, 1, 2:
			sent++
			p.acquire(t, engine.Request{Nonce: sent, Wait: rapid.IntRange(0, 3).Draw(t, "wait") > 0,
				Resources: engine.SortedSet(rapid.SliceOfN(rapid.SampledFrom(p.locks()), 1, 3).Draw(t, "locks"))})
		case 3: // a repeated or late copy
			if r, ok := p.requests[earlier()]; ok && !p.denied[r.Nonce] {
				p.acquire(t, r)
			}
		case 4:
			nonce := earlier()
			p.model.Release(p.session, nonce)
			resources := p.locks()
			if r, ok := p.requests[nonce]; ok {
				resources = r.Resources
			}
			_, err := p.conn.Exec(p.ctx, "SELECT leased_release($1, $2)", texts(resources), p.attempt(nonce))
			require.NoError(t, err)
		case 5:
			name := rapid.SampledFrom(p.locks()).Draw(t, "lock")
			for _, h := range p.model.Inspect(name).Holders {
				p.model.Break(name, h.Token)
				var broken bool
				require.NoError(t, p.conn.QueryRow(p.ctx, "SELECT leased_break($1, $2)", string(name),
					p.tokens[h.Nonce]).Scan(&broken))
				require.True(t, broken)
			}
		}
		p.settle(t)
		p.compare(t)
	}
}

// acquire sends a request to both.
func (p *inPostgres) acquire(t *rapid.T, r engine.Request) {
	p.requests[r.Nonce] = r
	want := p.model.Acquire(p.session, r)
	have, token := p.ask(t, r)
	require.Equal(t, want.Code, have, "%v", r)
	switch have {
	case model.Held:
		p.denied[r.Nonce] = true
	case model.Granted:
		p.granted(t, r, token)
	}
}

// ask sends a request to the database.
func (p *inPostgres) ask(t *rapid.T, r engine.Request) (code model.Code, token int64) {
	var place *int64
	var wait *time.Duration
	if r.Wait {
		wait = new(time.Duration)
		*wait = time.Hour
	}
	err := p.conn.QueryRow(p.ctx, "SELECT coalesce(token, 0), place FROM leased_acquire($1, 'h', '1 hour', $2, NULL, $3)",
		texts(r.Resources), p.attempt(r.Nonce), wait).
		Scan(&token, &place)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "LL001" {
		return model.Ended, 0
	}
	require.NoError(t, err)
	switch {
	case token != 0:
		return model.Granted, token
	case place != nil:
		return model.Queued, 0
	}
	return model.Held, 0
}

// granted checks the token of a grant: an attempt has one token, which is above all earlier ones.
func (p *inPostgres) granted(t *rapid.T, r engine.Request, token int64) {
	if known, ok := p.tokens[r.Nonce]; ok {
		require.Equal(t, known, token, "an attempt has one token")
		return
	}
	p.tokens[r.Nonce] = token
	for _, name := range r.Resources {
		require.Greater(t, token, p.last[name])
		p.last[name] = token
	}
}

func texts(names []fencing.Resource) (list []string) {
	for _, name := range names {
		list = append(list, string(name))
	}
	return list
}

// settle lets all waiters ask again until nothing changes: a database does not grant a set by
// itself.
func (p *inPostgres) settle(t *rapid.T) {
	for changed := true; changed; {
		changed = false
		for _, nonce := range p.parties(t,
			"SELECT attempt FROM (SELECT DISTINCT attempt, ticket FROM leased_waiters WHERE starts_with(resource, $1)) w "+
				"ORDER BY ticket", p.prefix) {
			if code, token := p.ask(t, p.requests[nonce]); code == model.Granted {
				p.granted(t, p.requests[nonce], token)
				changed = true
			}
		}
	}
}

// parties returns the attempts that a query returns.
func (p *inPostgres) parties(t *rapid.T, query string, args ...any) (nonces []engine.Nonce) {
	rows, err := p.conn.Query(p.ctx, query, args...)
	require.NoError(t, err)
	attempts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, attempt := range attempts {
		var nonce engine.Nonce
		_, err := fmt.Sscanf(strings.TrimPrefix(attempt, p.prefix), "attempt %d", &nonce)
		require.NoError(t, err)
		nonces = append(nonces, nonce)
	}
	return nonces
}

// compare compares the holders and the queues. Grants that a release made are seen here.
func (p *inPostgres) compare(t *rapid.T) {
	for _, name := range p.locks() {
		status := p.model.Inspect(name)
		var want []engine.Nonce
		for _, party := range slices.Concat(status.Holders, status.Waiters) {
			want = append(want, party.Nonce)
		}
		require.Equal(t, want, p.parties(t, "SELECT attempt FROM leased_inspect($1)", string(name)),
			"holder and waiters of %s", name)
		for _, h := range status.Holders {
			code, token := p.ask(t, p.requests[h.Nonce])
			require.Equal(t, model.Granted, code)
			p.granted(t, p.requests[h.Nonce], token)
		}
	}
}
