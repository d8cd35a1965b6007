package member

import "errors"

// Errors that an operator can act on. Match them with errors.Is.
var (
	// ErrIdentity reports that the data folder does not belong to this member.
	ErrIdentity = errors.New("data folder and member do not match")
	// ErrFormation reports that the settings of the members conflict.
	ErrFormation = errors.New("cluster cannot be formed")
)
