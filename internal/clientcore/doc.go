// Package clientcore decides what a client does to acquire and keep leases. It is pure:
// no goroutines, no I/O, and time is an argument. Package lease runs it with real engines
// and clocks, and proptest/sim runs the same code under simulated faults.
//
//   - [Core] has the sessions of a client, and follows the topology of the service:
//     which mode serves a lock, which leases and waits a change ends;
//   - [Session] has the attempts and grants of one session: their nonces, deadlines and
//     renewals, what is lost, and what is released in the background;
//   - [Call] is one acquisition: what to do after each answer;
//   - [Members] and [Search] choose the member of the service that is asked, and the next
//     one when that fails;
//   - [Silence] notices a member that no longer answers.
//
// The driver holds a mutex while it calls a method, and does what the method returns:
// it sends a renewal, releases an attempt, reports a loss, asks again. Then it calls
// the method for the answer.
//
// A lease ends here before it ends for the service: the deadline of a grant counts from
// before the request that granted or extended it was sent, and is shorter than the TTL
// by the drift.
package clientcore
