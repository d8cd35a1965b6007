// Command leased is the lock service, its command line and its tools in one
// program.
//
// A lock without a gate is only a hint: pass the token of a lease with each write
// to a gate that refuses older tokens.
//
// root.go lists the commands, and commands.txt has their help. Shared files: access.go (how a command
// reaches the service), dial.go (clients and calls of the API), args.go and output.go (arguments, results
// and messages), exit.go (errors and exit codes), environment.go (variables), waiting.go and migration.go
// (progress), live.go (live lists of locks), garbage.go (garbage collection of a
// member), process_unix.go (process groups and open files), other.go (stubs for systems other than Unix).
package main

import (
	"os"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	logging.Disable() // of go-redis: callers report the errors, once
	os.Exit(execute(newRoot(), os.Args[1:]))
}
