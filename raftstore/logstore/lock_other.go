//go:build !unix

package logstore

import (
	"os"
	"path/filepath"
)

// lockDir does not lock on this system. The operator must not start two processes on one
// folder.
func lockDir(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
}
