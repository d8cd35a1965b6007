package member

import "errors"

// What an operator can act on. Match with errors.Is.
var (
	// ErrIdentity: the folder belongs to another member, or the member has lost
	// its folder.
	ErrIdentity = errors.New("member is not who it was")
	// ErrFormation: the members do not fit together.
	ErrFormation = errors.New("cluster cannot be formed")
)
