// Package transport connects the Raft library of a node to its peers: by TCP with mutual
// TLS, or by plain TCP on the loopback interface.
//
// It authenticates peers by their certificates only: any peer whose certificate is
// accepted can change the log.
//
// The nouns, in reading order: [Transport], the interface (transport.go);
// [Sequential], which disables two optimizations of the library (transport.go);
// [Progress], how much of the log each follower has (progress.go); [Listen], the
// TCP transport (tcp.go).
package transport
