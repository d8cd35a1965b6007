package devca

import "errors"

// Errors that a caller can act on. Match them with errors.Is.
var (
	// ErrName reports an unusable name or host name.
	ErrName = errors.New("invalid name")
	// ErrCA reports that the CA of the folder cannot be used.
	ErrCA = errors.New("unusable CA")
	// ErrExists reports a key or a certificate that only --force may replace.
	ErrExists = errors.New("not replaced")
)
