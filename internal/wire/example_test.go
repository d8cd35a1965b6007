package wire_test

import (
	"errors"
	"fmt"

	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// One row of the table of errors has the gRPC code, the HTTP status, the exit code and
// the hint of an error.
func ExampleKindOf() {
	kind := wire.KindOf(fmt.Errorf("acquire %q: %w", "jobs/42", engine.ErrHeld))
	fmt.Println(kind.Code, kind.GRPC, kind.HTTP, kind.Exit)
	fmt.Println(kind.Hint)
	// Output:
	// held FailedPrecondition 409 120
	// wait for the lock, or try again later; inspect the lock to see its holder
}

// An error has the same meaning and the same text on both sides of a connection.
func ExampleToError() {
	sent := wire.FromError(fmt.Errorf("renew %q: %w", "jobs/42", engine.ErrExpired))
	received := wire.ToError(sent)
	fmt.Println(received)
	fmt.Println(errors.Is(received, engine.ErrExpired), errors.Is(received, engine.ErrLost))
	// Output:
	// renew "jobs/42": lease has expired
	// true true
}
