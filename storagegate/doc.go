// Package storagegate is where a stale write is refused.
//
// What a gate does not give: it is no lock, it does not order or deduplicate
// the retries of one holder (they carry the same token, and all of them pass),
// and it protects only the writes that go through it. What leaves the storage,
// such as an e-mail or a payment, cannot be taken back by any gate.
//
// A gate applies the rule of package fencing to a real storage, so that check
// and write are one atomic step of the storage that holds the data, and the
// mark is as durable as the data:
//
//  1. a token equal to or above the mark passes, and the mark becomes the token;
//  2. Enter raises the mark before the holder's first read;
//  3. once a resource is fenced, a write without a token is refused;
//  4. marks are never deleted and never lowered;
//  5. a refused write returns *fencing.StaleError, and nothing was written;
//  6. a bound on the jump keeps one absurd token from locking everyone out;
//  7. the holder's own retries are the holder's business.
//
// The nouns, in reading order: [Gate], the contract; [Monitor], which counts
// and reports what a gate decided; [Decision] and [Outcome], what it reports.
// One sub-package per storage implements Gate; gatetest holds the suite that
// all of them pass.
package storagegate
