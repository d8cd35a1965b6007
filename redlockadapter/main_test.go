package redlockadapter_test

import (
	"context"
	"flag"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
)

// quiet keeps go-redis from logging every node that a test kills.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	// Tests with real servers mostly wait, so more of them run at once than there are
	// cores. The flag on the command line takes precedence.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err) // go test defines the flag
	}
	flag.Parse()
	os.Exit(m.Run())
}
