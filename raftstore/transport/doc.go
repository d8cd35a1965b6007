// Package transport connects the Raft library of a node to its peers: by TCP with mutual
// TLS, or by plain TCP on the loopback interface.
//
// It authenticates peers by the members that their certificates name. It does not limit
// what a member may do: any member can change the log.
//
// The nouns, in reading order: [Transport], the interface (transport.go);
// [Sequential], which disables two optimizations of the library (transport.go);
// [Progress], how much of the log each follower has (progress.go); [Memory], which
// refuses voters that have lost entries (memory.go); [Listen] and [TCP], the TCP
// transport (tcp.go), its connections (stream.go, handshakes.go), how it identifies a peer (check.go)
// and the sender of a request (receive.go), how it sends entries (append.go, appendcodec.go) and bounds the
// transfer of a snapshot (snapshot.go); [MemberURI], the name of a member in a certificate (identity.go).
package transport
