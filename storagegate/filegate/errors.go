package filegate

import "errors"

// ErrDamaged means that the file of a mark does not contain a mark. No write is
// admitted until an operator restores the last mark, or a larger one.
var ErrDamaged = errors.New("file of a mark is damaged")

// ErrLockRemoved means that the file of a lock was removed during a write, so
// that another writer could run at the same time. Nothing was written. Do not
// change files in the folder .leased, and try again.
var ErrLockRemoved = errors.New("file of a lock was removed during the write")
