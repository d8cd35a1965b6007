package sqlgate

import "errors"

// ErrUnknownDialect says that a name or value is no Dialect of this package.
var ErrUnknownDialect = errors.New("unknown SQL dialect")

// ErrInvalidTable says that what Guard was given cannot be guarded.
var ErrInvalidTable = errors.New("table cannot be guarded")
