package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/secret"
	"github.com/leased-project/leased/lease/remote/wire"
)

// The exit codes of all commands. Those of leased itself are high, so that they
// are seldom those of a command under `leased run`.
const (
	exitError       = 1
	exitUsage       = 2
	exitHeld        = 120
	exitLost        = 121
	exitUnavailable = 122
	exitUncertain   = 123
	exitRefused     = 124
	exitCannotRun   = 126
	exitNotFound    = 127
	exitSignal      = 128
)

const exitCodes = `Exit codes, the same for all commands:
  0    done
  1    failed, for another reason than those below
  2    the command line or the configuration is wrong
  120  not acquired: others hold the lock
  121  the lease was lost, or is not held
  122  the service is out of reach; nothing has happened
  123  uncertain: it may or may not have happened
  124  refused: the lock has another mode, the mode cannot do this, or you are no user of the service
  126  run: the command cannot be run
  127  run: the command was not found
  128+n  ended by signal n
"leased run" passes on the exit code of its command.`

// codeError ends the program with a code. Without err nothing is printed.
type codeError struct {
	code int
	err  error
}

// Error is the text of the cause.
func (e *codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap is the cause.
func (e *codeError) Unwrap() error { return e.err }

func usageError(err error) error { return &codeError{exitUsage, err} }

// execute runs a command line, prints what went wrong and what to do, and
// returns the exit code.
func execute(root *cobra.Command, args []string) int {
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return 0
	}
	var coded *codeError
	if errors.As(err, &coded) && coded.err == nil {
		return coded.code
	}
	fmt.Fprintf(os.Stderr, "leased: %s\n", secret.Hide(err.Error())) // it may repeat an argument
	if hint := hintFor(err); hint != "" {
		fmt.Fprintf(os.Stderr, "        %s\n", hint)
	}
	return codeOf(err)
}

// outcomes are in the order in which an error is tried.
var outcomes = []struct {
	err  error
	code int
	hint string
}{
	{lease.ErrUncertain, exitUncertain, "it may or may not have happened: look with `leased inspect`, then try again"},
	{wire.ErrUnauthenticated, exitRefused, "the service has users: give your secret with --secret-file, LEASED_SECRET_FILE or LEASED_SECRET; `leased user add` makes one"},
	{lease.ErrModeMismatch, exitRefused, "leave --mode out to take the lock as it is, or change its policy with `leased policy set`"},
	{lease.ErrUnsupported, exitRefused, ""},
	{lease.ErrHeld, exitHeld, "see who holds it with `leased inspect`, or wait for it with --wait"},
	{lease.ErrLost, exitLost, "stop writing; acquire again for a new token"},
	{lease.ErrReleased, exitLost, ""},
	{errUnreached, exitUnavailable, "is the service running? Start one with `leased dev`, or name it with --endpoint or LEASED_ENDPOINT"},
	{lease.ErrUnavailable, exitUnavailable, "nothing has happened: try again in a moment"},
	{lease.ErrInvalid, exitUsage, ""},
	{fencing.ErrInvalidResource, exitUsage, ""},
}

// codeOf is the exit code for an error.
func codeOf(err error) int {
	var coded *codeError
	if errors.As(err, &coded) {
		return coded.code
	}
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			return o.code
		}
	}
	return exitError
}

// hintFor is what to do about an error that does not say so itself.
func hintFor(err error) string {
	var coded *codeError
	if errors.As(err, &coded) {
		return "" // it says so itself
	}
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			return o.hint
		}
	}
	return ""
}
