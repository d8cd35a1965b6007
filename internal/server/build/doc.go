// Package build describes the running build of the program: its version, its commit, and the
// formats that it reads.
//
// It compares nothing: each format is checked where it is read. The only noun is [Info], the
// description.
package build
