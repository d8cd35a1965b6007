//go:build !unix

package logstore

import (
	"os"
	"path/filepath"
)

// lockDir does not lock here: two processes on one folder are the operator's
// mistake to avoid.
func lockDir(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
}
