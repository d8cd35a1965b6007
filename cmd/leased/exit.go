package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/httpapi"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// The exit codes of `leased run` that are not in the error table of package wire.
const (
	exitCannotRun = 126
	exitNotFound  = 127
	exitSignal    = 128
)

// exitCodes is the help text about exit codes.
var exitCodes = fmt.Sprintf(`Exit codes of all commands:
  0      success
  %-5d  failed for a reason without a code of its own
  %-5d  the command line, the configuration or the request is wrong
  %-5d  the call would exceed a limit of the service
  %-5d  forbidden: you lack a right, which the message names
  %-5d  not acquired: others hold the lock
  %-5d  the lease was lost, or is not held
  %-5d  the service cannot be reached or has no leader; nothing has happened
  %-5d  uncertain: it may or may not have happened
  %-5d  refused: the lock's mode or number of permits does not allow it, or the service does not know you
  %-5d  run: the command cannot be executed
  %-5d  run: the command was not found
  %d+n  ended by signal n
"leased run" passes on the exit code of its command.
With --output json, a failed command prints {"error": ...} with the fields of the HTTP API.`,
	wire.ExitError, wire.ExitUsage, wire.ExitLimit, wire.ExitForbidden, wire.ExitHeld, wire.ExitLost, wire.ExitUnavailable,
	wire.ExitUncertain, wire.ExitRefused,
	exitCannotRun, exitNotFound, exitSignal)

// codeError ends the program with an exit code. Nothing is printed if err is nil.
type codeError struct {
	code int
	err  error
}

// Error returns the text of the cause.
func (e *codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap returns the cause.
func (e *codeError) Unwrap() error { return e.err }

func usageError(err error) error { return &codeError{wire.ExitUsage, err} }

// execute runs a command line, prints the error with a hint, and returns the exit code.
// With --output json, the error is also an object on the standard output, for scripts.
func execute(root *cobra.Command, args []string) int {
	root.SetArgs(args)
	c, err := root.ExecuteContextC(withTraceparent(context.Background(), os.Getenv(traceVariable)))
	if err == nil {
		return 0
	}
	code, hint := explain(err)
	if coded, ok := errors.AsType[*codeError](err); ok && coded.err == nil {
		return code
	}
	fmt.Fprintf(c.ErrOrStderr(), "leased: %s\n", secret.Hide(err.Error())) // the message may repeat an argument
	if hint != "" {
		fmt.Fprintf(c.ErrOrStderr(), "        %s\n", hint)
	}
	if format := c.Flags().Lookup("output"); format != nil && format.Value.String() == "json" {
		_ = printJSON(c.OutOrStdout(), map[string]any{"error": errorObject(err)}, "  ")
	}
	return code
}

// errorObject is an error in the form of the HTTP API.
func errorObject(err error) json.RawMessage {
	e := wire.FromError(err)
	if coded, ok := errors.AsType[*codeError](err); ok && coded.code == wire.ExitUsage {
		e.Code, e.Hint = wire.KindOf(engine.ErrInvalid).Code, ""
	}
	e.Message = secret.Hide(e.Message)
	return httpapi.Encode(e)
}

// explain returns the exit code and the hint for an error. A codeError, an invalid
// request and an error from outside the service get no hint: their text says what to
// do.
func explain(err error) (code int, hint string) {
	if coded, ok := errors.AsType[*codeError](err); ok {
		return coded.code, ""
	}
	kind := wire.KindOf(err)
	if kind.Code == wire.CodeInternal || kind.Exit == wire.ExitUsage {
		return kind.Exit, ""
	}
	return kind.Exit, kind.Hint
}
