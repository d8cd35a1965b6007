package pgxgate_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/gatetest"
	"github.com/leased-project/leased/storagegate/sqlgate/pgxgate"
)

const (
	envDSN   = "PGXGATE_TEST_DSN"
	envValue = "PGXGATE_TEST_VALUE"
)

// subject is a handle that can also die.
type subject struct {
	gatetest.Pauser
	dsn string
}

// Crash runs the write in a process of its own and kills that between check and
// commit.
func (s subject) Crash(t testing.TB, resource fencing.Resource, token fencing.Token, value string) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), envDSN+"="+s.dsn, envValue+"="+value)
	child.Env = append(child.Env, fencing.Environ(resource, token)...)
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "standing still\n", line)
	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
}

// standStill is the child of Crash.
func standStill() {
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
		fmt.Println("standing still")
		select {}
	}))
}
