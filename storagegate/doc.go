// Package storagegate defines gates: they refuse stale writes to a storage.
//
// Limits: a gate is not a lock. It does not order or deduplicate the retries of
// one holder: they carry the same token, so all of them pass. It protects only
// writes that go through it. An effect outside the storage, such as an e-mail or
// a payment, cannot be undone by a gate.
//
// A gate applies the rule of package fencing to a real storage. Check and write
// are one atomic step of the storage that holds the data, and the mark is as
// durable as the data:
//
//  1. a token equal to or above the mark is admitted and becomes the mark;
//  2. Enter raises the mark before the holder's first read;
//  3. once a resource is fenced, a write without a token is refused;
//  4. marks are never deleted, and never lowered except by an operator ([Resetter]);
//  5. a refused write returns *fencing.StaleError, and nothing was written;
//  6. a bound on the jump keeps one absurd token from locking everyone out, and
//     applies by default;
//  7. the holder itself must make its retries idempotent.
//
// Types, in reading order: [Gate], the contract; [Resetter], which
// reopens a resource after an absurd token; [Monitor], which counts and reports the
// decisions of a gate; [Decision] and [Outcome], what it reports; [VerifyError] and
// [Weakness], why a server may lose marks; [Base] and [Steps], of which a gate for
// another storage is made.
//
// Each storage has a sub-package with a gate. Package gatetest is the test suite
// that all of them pass.
package storagegate
