package storagegate

import "errors"

// ErrUncertain means that the storage did not say whether it committed the
// write: the write may or may not have happened. A refused write never returns
// it. To find out, read the data again under the same token.
var ErrUncertain = errors.New("outcome of the gated write is unknown")
