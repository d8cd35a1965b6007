package filegate

import "errors"

// ErrDamaged says that the file of a mark does not hold a mark. No write passes
// until an operator has put back the last mark, or one above it.
var ErrDamaged = errors.New("file of a mark is damaged")

// ErrLockRemoved says that somebody removed the file of a lock during a write,
// so that others could write beside it. Nothing was written. Leave the folder
// .leased alone, and try again.
var ErrLockRemoved = errors.New("file of a lock was removed during the write")
