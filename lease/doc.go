// Package lease takes locks for a time, renews them and releases them.
//
// A lease alone does not protect data. Its holder may be paused, by a garbage
// collector, a SIGSTOP, a suspended machine or a slow network, and wake up after the
// lease has passed to another holder. No check before a write can prevent that, so
// this package has none. Instead every lease has a fencing token, and a gate in front of
// the data (package storagegate) refuses writes with older tokens. [Gate] binds a gate to
// a lease. A lease without a gate is only a hint.
//
// [Client.Acquire] waits for a lock, [Client.Do] runs a function under one, and
// [Client.Elect] campaigns for leadership. Programs that use a service get their Client
// from package client. Package engine is the contract of what provides leases.
package lease
