// Package testserver starts real servers for tests. Each server listens on a free
// loopback port and has its own temporary folder. It is stopped and removed when
// the test ends.
//
// It never uses a server that is already running, and it never skips a test: if a
// program is missing, the test fails and names the package to install.
//
// In reading order: [Process], a program that can be paused, killed and restarted;
// [Server], a running server; [Postgres] and [Redis], which start a server for one test;
// [StartLeased], which starts a member of our own service; [Shared], which starts a server
// for all tests of a package; [Authority], which signs certificates; [Eventually], which
// waits for a condition.
package testserver
