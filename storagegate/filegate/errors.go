package filegate

import "errors"

// ErrDamaged says that the file of a mark does not hold a mark. No write passes
// until an operator has put back the last mark, or one above it.
var ErrDamaged = errors.New("file of a mark is damaged")
