// Package transport connects the Raft engine of a node to its peers: TCP with
// mutual TLS, or plain TCP on the loopback interface.
//
// It has no authentication of its own beyond the certificates: any peer whose
// certificate is accepted can change the log.
//
// The nouns, in reading order: [Transport], what the engine needs (transport.go);
// [Sequential], which turns two shortcuts of the engine off (transport.go);
// [Progress], how much of the log each follower has (progress.go); [Listen], the
// TCP transport (tcp.go).
package transport
