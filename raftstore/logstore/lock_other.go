//go:build !unix

package logstore

import "os"

func flock(*os.File) error { return nil }
