package sqlgate

import "errors"

// ErrUnknownDialect says that a name or value is no Dialect of this package.
var ErrUnknownDialect = errors.New("unknown SQL dialect")

// ErrInvalidTable says that what Guard was given cannot be guarded.
var ErrInvalidTable = errors.New("table cannot be guarded")

// ErrTransactionEnded says that the gated transaction was over before the gate
// could commit it: the write ran a statement that ends it, or went on after a
// deadlock. Such an error is also a storagegate.ErrUncertain.
var ErrTransactionEnded = errors.New("the transaction was ended inside the write")
