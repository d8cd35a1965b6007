//go:build !unix

package settings

import "os"

func keepOwner(string, *os.File) error { return nil }

// SyncFolder does nothing: this system does not sync folders.
func SyncFolder(string) error { return nil }
