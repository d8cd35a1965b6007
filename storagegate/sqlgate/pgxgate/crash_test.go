package pgxgate_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/gatetest"
	"github.com/leased-project/leased/storagegate/sqlgate/pgxgate"
)

const (
	envDSN   = "PGXGATE_TEST_DSN"
	envValue = "PGXGATE_TEST_VALUE"
)

// subject is a handle that can also crash.
type subject struct {
	gatetest.Pauser
	storagegate.Resetter
	dsn string
}

// Crash runs the write in a child process and kills it between check and commit.
func (s subject) Crash(t testing.TB, resource fencing.Resource, token fencing.Token, value string) {
	t.Helper()
	testserver.KillPaused(t, append(fencing.Environ(resource, token), envDSN+"="+s.dsn, envValue+"="+value)...)
}

// pausedChild is the child of Crash.
func pausedChild() {
	ctx := context.Background()
	resource, token, err := fencing.FromEnviron()
	if err != nil {
		panic(err)
	}
	pool, err := pgxpool.New(ctx, os.Getenv(envDSN))
	if err != nil {
		panic(err)
	}
	panic(pgxgate.New(pool, fencing.Rule{}).Do(ctx, resource, token, func(tx pgxgate.Tx) error {
		if err := put(ctx, tx, resource, os.Getenv(envValue)); err != nil {
			return err
		}
		testserver.PauseForKill()
		return nil
	}))
}
