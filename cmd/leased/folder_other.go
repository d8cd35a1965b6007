//go:build !unix

package main

// lockFolder does nothing: this system has no file locks.
func lockFolder(string) (unlock func(), err error) { return func() {}, nil }
