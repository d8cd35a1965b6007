// Package redlock checks the tokens of the efficiency mode exhaustively: every
// order in which messages can arrive, locks can end, nodes can lose their state
// and the log can change, for a few nodes and attempts.
//
// It says nothing of larger numbers, of time, or of mutual exclusion, which the
// protocol does not promise without time. It checks two promises for one lock over
// both modes: no token is granted twice (T1), and a grant that starts after
// another was completed has a larger token (T2).
//
// Attempts run quorum.Attempt, recoveries and changes run package recovery: the
// code of production. Nodes follow package redisnode, which a test compares with
// the Lua scripts. The Raft log is an atomic register with the rules of
// raftstore/machine. Requests and answers may be late for ever, clients may use
// any topology that ever gave the lock efficiency mode, the keeper's messages may
// come at any time, and a lock may end at any time.
//
// A search visits the nearest states first, so a violation comes with a shortest
// trace. [Shortcut] lists the rules that a test takes out, one after the other, to
// see that the search finds what each of them prevents.
//
// The nouns, in reading order: [Bounds], what a search covers; [State], one state
// of clients, nodes and log; event, one step from a state to the next; [Search],
// which visits every State within its Bounds.
package redlock
