// Command leased is leases with fencing tokens, as one program: the service,
// its command line, and the tools around it.
//
// What it does not give: a lock with no gate behind it is only a hint. Pass the
// token of a lease with each write to a gate that refuses older ones.
//
// Each command has a file of its own; root.go lists them.
package main

import (
	"context"
	"os"

	"github.com/redis/go-redis/v9"
)

func main() {
	redis.SetLogger(silent{}) // every failure is in an error that is told once
	os.Exit(execute(newRoot(), os.Args[1:]))
}

// silent is a logger of go-redis.
type silent struct{}

// Printf prints nothing.
func (silent) Printf(context.Context, string, ...any) {}
