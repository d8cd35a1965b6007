// Package memory provides leases in the memory of one process: for tests, and for
// programs that do not need a service yet.
//
// It keeps nothing when the process ends and knows no network, so it does not
// protect anything that several processes write. It runs the state machine of the
// correctness mode, so grants, queues and tokens behave as they do there.
//
// The nouns: [Backend], and session.go with its sessions.
package memory
