// Package memory provides leases in the memory of one process, for tests and for
// programs that do not need a service yet.
//
// It keeps nothing when the process ends and has no network, so it does not protect
// data that several processes write. It runs the state machine of correctness mode, with the
// deadlines of a leader and the hub of a replica, so grants, queues and tokens behave as they
// do there.
//
// The types, in reading order: [Backend] (backend.go) and its sessions (session.go).
package memory
