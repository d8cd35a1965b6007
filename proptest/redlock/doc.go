// Package redlock is an exhaustive model checker for the tokens of the efficiency mode. It
// explores every order in which messages arrive, locks end, nodes lose their state and the
// log changes, for a few nodes and attempts.
//
// It does not cover larger numbers, time, or mutual exclusion, which depends on time. It
// checks two properties of one lock across both modes: no token is granted twice (T1), and
// a grant that starts after another was completed has a larger token (T2). With
// [Bounds].Leases it also follows granted leases: see leases.go.
//
// With [Bounds].QuorumFirst, attempts ask a quorum of the nodes first and may end at any time, and the search checks
// that no node keeps the lock of an ended attempt.
//
// Production code in it: quorum.Attempt, quorum.Renewal, quorum.GrantedToken and package
// recovery. Nodes are those of package redisnode. The Raft log is an atomic register with the rules of
// raftstore/machine. Requests and answers may be delayed forever, clients may use any topology that ever had
// the lock in efficiency mode, messages of the keeper may arrive at any time, and a lock may end at any time.
//
// An address may move to a new server while the old one lives on, and any process may keep
// its connections to the old one. A service names the lives that vote, and closes older
// sets of lives with recovery.Set. When time closes a set, or the quarantine of a standalone
// recovery ends, no process uses a connection to a server that has lost its address: this
// is the assumption of the protocol, and a test shows that it is needed.
//
// The search is breadth-first, so a violation has a shortest trace. [Shortcut] lists the
// rules that a test disables, one at a time, to see that the search finds what each of
// them prevents.
//
// Files, in reading order: bounds.go, [Bounds], the limits of a search; state.go, [State],
// the state of clients, nodes and log; event.go, the steps between states, with client.go,
// leases.go, node.go, lives.go, keeper.go, restore.go and standalone.go, their effects; search.go,
// [Search], with trace.go.
package redlock
