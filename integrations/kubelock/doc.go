// Package kubelock elects the leader of Kubernetes controllers with leases, and puts the
// token of the leader on everything that it writes to the API server. The policy that
// `leased gate ddl --dialect kubernetes` prints then refuses the writes of a leader that
// was paused and replaced.
//
// What it does not give: a new object has no mark yet, so an object that a former leader
// creates late is refused only if its name exists, or if the new leader has written to
// its namespace. Writes with another client are not checked. A leader acts until it
// notices that it lost its lease; only its writes are refused.
//
// Lock is the resourcelock.Interface of client-go. Its method Transport wraps the
// connection of a client.
package kubelock
