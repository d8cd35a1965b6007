// Package recovery decides how Redis nodes become voters, and what they must
// reach before a change of mode or fleet may complete.
//
// It only decides: it does no I/O and reads no clock. A restart of a Redis server counts as
// data loss: the keys of its new life have other names, so the node is empty and does not
// vote. It becomes a voter again with a floor above every token that it may have helped to
// grant and has forgotten. A quorum of nodes reports which tokens were granted; with a
// service, the ceiling of the Raft log replaces reports that no node can give.
//
// A life is one run of one server. Quorums share a node only if they are quorums of lives:
// an address can lead two processes to two living servers. So a version of the topology
// names the lives that vote, and a new life votes only after the sets of lives of older
// versions are closed.
//
// The nouns, in reading order: [Report], the state of a node; [Range], the tokens that a
// node may accept; [Set], the lives of one version; [Goal], the version, lives, floor and
// ceiling that every node must reach; [Reconcile], which brings a log that may have
// forgotten something up to date with the nodes; [Standalone], which recovers nodes without
// a service: reports go in, actions come out.
//
// The adapter, the service, the exhaustive search and the simulator run the same
// functions.
package recovery
