// Package examples holds programs to read and run, each in a folder of its own.
//
// They do not show the gates of real storages: docs/GATES.md does. The program client
// dials the service that `make run` starts. The others use locks in memory, so that
// each runs by one command.
package examples
