// Package abuse attacks the real server from the outside, and prints what each attack
// costs the server and the clients beside it.
//
//	go test -v ./internal/abuse                       # 1,000 connections
//	go test -v ./internal/abuse -args -scale=10000    # as make soak runs it
//	go test ./internal/abuse -args -binary=PATH       # another build of leased
//
// It does not measure speed: figures are printed, and only counts, refusals and
// generous bounds of memory are asserted. docs/SECURITY.md names its tests.
//
// Files, all of them tests, in reading order:
//
//   - harness_test.go: server, a leased process with its memory and its open files.
//   - bystander_test.go: bystander, a client that must be served during an attack.
//   - wire_test.go: raw HTTP/2 frames.
//   - malformed_test.go, oversized_test.go, connections_test.go, waiters_test.go,
//     slow_test.go, replay_test.go, certificates_test.go: the attacks.
//   - rights_test.go: a user without rights on every call of every service.
package abuse
