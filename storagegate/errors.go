package storagegate

import "errors"

// ErrUncertain says that the storage did not answer whether the write was
// committed: it may or may not have happened. It is never returned for a
// refused write. To find out, read the data again under the same token.
var ErrUncertain = errors.New("outcome of the gated write is unknown")
