// Command leased is the lock service, its command line and its tools in one
// program.
//
// A lock without a gate is only a hint: pass the token of a lease with each write
// to a gate that refuses older tokens.
//
// Each command has a file of its own; root.go lists them. Shared files: access.go (how a
// command reaches the service), dial.go (clients of package client), args.go, output.go and
// plain.go (arguments, results and messages), exit.go (errors and exit codes), waiting.go and
// migration.go (progress), overview.go and live.go (live lists of locks),
// inbox.go (signals under run), traceparent.go (traces), notify.go (systemd), folder_unix.go (file locks), other.go
// (what is missing on systems other than Unix).
package main

import (
	"context"
	"os"

	"github.com/redis/go-redis/v9"
)

func main() {
	redis.SetLogger(silent{}) // callers report the errors, once
	os.Exit(execute(newRoot(), os.Args[1:]))
}

// silent is a logger of go-redis that prints nothing.
type silent struct{}

// Printf prints nothing.
func (silent) Printf(context.Context, string, ...any) {}
