//go:build !unix

package settings

import "os"

func keepOwner(string, *os.File) error { return nil }

func syncFolder(string) error { return nil }
