package storagegate

import "errors"

// ErrUncertain means that the storage did not say whether it committed the
// write: the write may or may not have happened. A refused write never returns
// it. To find out, read the data again under the same token.
var ErrUncertain = errors.New("outcome of the gated write is unknown")

// ErrMarkChanged means that Reset changed nothing, because the mark is not the
// expected one.
var ErrMarkChanged = errors.New("the mark is not the expected one")

// ErrNotLower means that Reset changed nothing, because the new mark is not a token
// below the expected mark.
var ErrNotLower = errors.New("the new mark must be a token below the mark")

// ErrNotDurable means that the marks of a gate can be lost. It is matched by the
// *VerifyError that says why.
var ErrNotDurable = errors.New("marks can be lost, and stale writes would then be admitted")
