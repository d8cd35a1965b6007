// Package tfstate keeps the state of Terraform and OpenTofu behind a gate. It serves
// the protocol of their http backend: LOCK, UNLOCK, GET, POST and DELETE.
//
// Limits:
//
//   - It protects the state, not the infrastructure: a paused apply that continues after
//     force-unlock can still call the APIs of its providers.
//   - A lock is held while this program runs and reaches the lock service. If it is
//     lost, another run can lock the state; the writes of the first one are refused
//     from then on, but not before.
//   - Versions are never deleted. Blobs that no index names are left by writes that were
//     refused.
//
// A lock is a lease. Locking raises the mark of the state and records the ID of the lock
// in the index of the state, in one step of the storage. A write names this ID. It stores
// the new state as a blob that is named by its digest and never changes, then appends it
// to the index with the token of the lease, in one step with the checks of the token and
// of the ID. So a run whose lock was passed on, or was removed by force-unlock, cannot
// change the state. Any process that uses the same storage can serve any request.
//
// Types, in reading order: [Handler], the HTTP handler; [LockInfo], what Terraform says
// about a lock; [Version], a state; [Storage], the gate.
package tfstate
