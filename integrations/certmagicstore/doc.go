// Package certmagicstore keeps the certificates of certmagic in PostgreSQL, for a
// cluster of servers, and its locks are leases. A server that was paused while it
// obtained or renewed a certificate cannot store or delete anything after another one
// has taken over the lock: PostgreSQL refuses the write in its transaction.
//
// What it does not give:
//
//   - certmagic does not say under which lock it writes, so the names decide. A write
//     carries the token of the lock issue_cert_NAME if the key contains NAME, and the
//     tokens of all other locks that the process holds.
//   - certmagic writes some keys without a lock (OCSP staples, its test of the storage,
//     what it deletes after a revocation, and whatever a job still writes after
//     certmagic.CleanUpOwnLocks). They have no token, and the last write wins.
//   - certmagic cleans its storage under one lock and renews certificates under others.
//     A paused cleaner can delete a certificate that was renewed meanwhile, unless
//     another cleaner has begun since.
//   - The certificate authority has no gate: a paused server can finish an order there.
//
// Read Storage, then its methods in locks.go.
package certmagicstore
