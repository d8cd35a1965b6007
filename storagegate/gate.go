package storagegate

import (
	"context"

	"github.com/leased-project/leased/fencing"
)

// Gate guards writes to one storage. Tx is what a write works with: a
// transaction, a bucket, the bytes of a file. All methods may be called
// concurrently, from any number of processes that share the storage.
//
// Every method returns *fencing.StaleError or *fencing.JumpError for a refusal,
// an error matching fencing.ErrInvalidResource or fencing.ErrInvalidToken for
// bad input, ErrUncertain when the storage did not say whether it committed,
// and any other error when nothing was written.
type Gate[Tx any] interface {
	// Do admits token and runs write, in one atomic step: when Do returns nil,
	// what write did and the raised mark are durable together; when write
	// returns an error, or the token is refused, neither is. A None token
	// passes while the resource has never been fenced. write may run more than
	// once if the storage asks for a retry, and must do its work through tx.
	Do(ctx context.Context, resource fencing.Resource, token fencing.Token, write func(tx Tx) error) error

	// Enter raises the mark to token and writes nothing else. A holder calls it
	// before it reads what it is going to change; the raised mark is durable
	// when Enter returns nil. A None token is always refused.
	Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error

	// Mark is the newest token admitted for the resource, None if there is
	// none. It is for inspection: a decision made on it and a write that
	// follows are two steps.
	Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error)
}
