// Package testserver starts real servers for tests: on a free port of the
// loopback interface, in a folder of their own, stopped and removed at the end.
//
// It never uses a server that happens to run already, and it never skips: if a
// program is missing, the test fails and says which package brings it.
//
// The nouns: [Server], a running one; [Postgres] and [MariaDB], which start one
// for one test; [Shared], which starts one for all tests of a package.
package testserver
