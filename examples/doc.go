// Package examples holds programs to read and to run, each in a folder of its
// own. All but client use a lock service in the memory of one process, so that each
// is a single command; client dials the service of `make run`.
package examples
