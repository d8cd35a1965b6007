//go:build !unix

package main

// lockFolder has no lock here: do not start two on one folder.
func lockFolder(string) (unlock func(), err error) { return func() {}, nil }
