package userfile

import (
	"errors"
	"fmt"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
)

// Errors that a caller can act on. Match them with errors.Is.
var (
	// ErrEmpty reports that the file is empty. It matches settings.ErrInvalid, like
	// all errors about the content of the file.
	ErrEmpty = fmt.Errorf("%w: the file is empty; add a user with `leased user add`, or write [] to reject all callers",
		settings.ErrInvalid)
	// ErrBusy reports that another process is changing the file.
	ErrBusy = errors.New("users file is being changed")
)
