// Package recovery decides how Redis nodes become voters, and what they must
// reach before a change of mode or fleet may complete.
//
// It gives nothing by itself: it does no I/O and reads no clock. A restart of a
// Redis server is a loss: its state has another name afterwards, so the node is
// empty and does not vote. It becomes a voter again with a fresh range of tokens
// above everything that it can have accepted and forgotten. With a service, the
// Raft log assigns that range; without one, a majority of nodes reports how far
// tokens had come.
//
// The nouns, in reading order: [Report], what a node says of itself; [Goal],
// the version, fleet, floor and ceiling that the log wants every node to have;
// [Reconcile], how a log that may have forgotten something catches up with the
// nodes; [StandaloneFloor], the floor of a recovered node without a service.
//
// The adapter, the service, the exhaustive search and the simulator run these
// same functions.
package recovery
