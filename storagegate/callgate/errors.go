package callgate

import "errors"

// ErrUngated is what a function that names the resource of a call returns to
// let that call pass without a check, such as one that only reads. There is no
// empty resource that would mean this by accident.
var ErrUngated = errors.New("the call is not gated")

// ErrNotAdmitted says that a call did not run, because its turn did not come in
// time or its token could not be checked. It is no refusal: the same call may
// be tried again.
var ErrNotAdmitted = errors.New("the call was not admitted, nothing was written")
