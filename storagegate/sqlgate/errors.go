package sqlgate

import "errors"

// ErrUnknownDialect means that a name or value is not a Dialect.
var ErrUnknownDialect = errors.New("unknown SQL dialect")

// ErrInvalidTable means that Guard cannot guard the table.
var ErrInvalidTable = errors.New("table cannot be guarded")

// ErrTransactionEnded means that the gated transaction ended before the gate
// committed it: the write executed a statement that ends a transaction, or
// continued after a deadlock. The error also matches storagegate.ErrUncertain.
var ErrTransactionEnded = errors.New("the transaction was ended inside the write")

// ErrCannotVerify means that a database cannot verify the signatures of tokens.
var ErrCannotVerify = errors.New("this database cannot verify signatures; " +
	"verify the token in the program, with signature.Verifier, before the gate")
