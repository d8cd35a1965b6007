// Package examples holds programs to read and to run, each in a folder of its
// own. They use a lock service in the memory of one process, so that each is a
// single command; a service for production changes the one line that makes the
// backend.
package examples
