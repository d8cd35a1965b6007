package engine

import "fmt"

// FormatError reports bytes in a newer version of a format than this build reads. The
// bytes are not damaged: a newer build has written them. Match it with errors.As.
type FormatError struct {
	Format string // what the bytes are, such as "log entry"
	Found  uint64 // the version of the bytes
	Newest uint64 // the newest version that this build reads
}

// Error says what to do.
func (e *FormatError) Error() string {
	return fmt.Sprintf("the %s has format version %d, and this build reads versions up to %d; upgrade to a build that "+
		"reads version %d "+
		"(`leased version` lists what a build reads)", e.Format, e.Found, e.Newest, e.Found)
}

// CheckFormat returns a *FormatError if found is above newest, and nil otherwise.
func CheckFormat(format string, found, newest uint64) error {
	if found > newest {
		return &FormatError{Format: format, Found: found, Newest: newest}
	}
	return nil
}
