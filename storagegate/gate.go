package storagegate

import (
	"context"

	"github.com/leased-project/leased/fencing"
)

// Gate guards writes to one storage. Tx is the handle through which a write
// works: a transaction, a bucket, the content of a file. All methods are safe
// for concurrent use, by any number of processes that share the storage.
//
// Every method returns *fencing.StaleError or *fencing.JumpError for a refusal,
// an error matching fencing.ErrInvalidResource or fencing.ErrInvalidToken for
// invalid input, ErrUncertain if the storage did not say whether it committed,
// and any other error if nothing was written.
type Gate[Tx any] interface {
	// Do admits token and runs write in one atomic step. If Do returns nil, the
	// effects of write and the raised mark are durable. If write fails or the
	// token is refused, neither is stored. None is admitted if the resource was
	// never fenced. If the storage asks for a retry, write runs again. write must
	// do all its work through tx.
	Do(ctx context.Context, resource fencing.Resource, token fencing.Token, write func(tx Tx) error) error

	// Enter raises the mark to token and writes nothing else. A holder calls it
	// before it reads the data that it will change. If Enter returns nil, the
	// raised mark is durable. None is always refused.
	Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error

	// Mark returns the newest token admitted for the resource, or None. It is for
	// inspection only: checking it and then writing is not atomic.
	Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error)
}

// Validate checks the arguments of a gate before the gate accesses its storage.
// The error matches fencing.ErrInvalidResource or fencing.ErrInvalidToken.
func Validate(resource fencing.Resource, token fencing.Token) error {
	if err := resource.Validate(); err != nil {
		return err
	}
	_, err := token.Value()
	return err
}

// RefuseTokenless is the Enter of a gate for the token None: it reads the mark
// for the error, records the refusal and returns it.
func RefuseTokenless(ctx context.Context, gate interface {
	Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error)
	Record(ctx context.Context, resource fencing.Resource, token fencing.Token, err error) error
}, resource fencing.Resource) error {
	mark, err := gate.Mark(ctx, resource)
	if err != nil {
		return err
	}
	return gate.Record(ctx, resource, fencing.None, fencing.Rule{}.Enter(resource, mark, fencing.None))
}
