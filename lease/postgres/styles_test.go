package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
)

// The settings of a role for the text of times and intervals make no difference, also if answers are texts.
func TestStylesOfTimes(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	pool := database(t, shared.Get(t).DSN)
	for _, style := range []string{"postgres", "postgres_verbose", "sql_standard", "iso_8601"} {
		config := pool.Config()
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		config.ConnConfig.RuntimeParams["intervalstyle"] = style
		config.ConnConfig.RuntimeParams["datestyle"] = "SQL, DMY"
		styled, err := pgxpool.NewWithConfig(ctx, config)
		require.NoError(t, err)
		t.Cleanup(styled.Close)
		b := backend(t, styled)
		s := open(t, b, nil)
		r := request(1, "a")
		g, err := s.Acquire(ctx, r)
		require.NoError(t, err, style)
		_, err = s.Acquire(ctx, request(2, "a"))
		require.ErrorIs(t, err, engine.ErrHeld, style)
		status, err := b.Inspect(ctx, "a")
		require.NoError(t, err, style)
		const minute, slack = float64(time.Minute), float64(30 * time.Second)
		require.InDelta(t, minute, status.Holders[0].TTL, slack)
		require.WithinDuration(t, time.Now(), status.Holders[0].Since, time.Minute)
		for ttl, want := range map[time.Duration]time.Duration{0: time.Minute, 2 * time.Minute: 2 * time.Minute} {
			if ttl == 0 {
				require.NoError(t, s.Update(ctx, engine.Held{Name: g.Name, Nonce: 1, Resources: r.Resources, TTL: want}))
			}
			renewed, err := b.Renew(ctx, "a", g.Token, ttl, nil)
			require.NoError(t, err, style)
			require.Equal(t, want, renewed)
		}
		page, err := b.List(ctx, "", "")
		require.NoError(t, err, style)
		require.Len(t, page, 1)
		require.NoError(t, b.Release(ctx, "a", g.Token))
	}
}

// A database may turn the warnings of PL/pgSQL for developers into errors.
func TestExtraErrors(t *testing.T) {
	t.Parallel()
	pool := database(t, shared.Get(t).DSN+"&plpgsql.extra_errors=all")
	require.Positive(t, grant(t, pool, "a"), "the first grant notes the origin of the tokens")
	require.Positive(t, grantSet(t, pool, "b"))
	do(t, pool, queueA, "SELECT leased_break('a', token) FROM leased_inspect('a') WHERE token > 0")
	require.Equal(t, 1, value[int](t, pool, holdersA), "the waiter")
	require.Positive(t, value[int64](t, pool, "SELECT leased_hold('c')"))
}
