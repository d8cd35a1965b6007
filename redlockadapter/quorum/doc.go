// Package quorum decides the outcome of acquisition attempts and renewals from the answers of N
// independent Redis nodes.
//
// It does not provide mutual exclusion, and depends on no clock and no I/O. It decides
// tokens: a token is granted when a quorum has accepted it for one attempt. A node accepts
// a token for one attempt only, and each is larger than the one before; two quorums share
// a node; so no token is granted twice, and a later grant has a larger token.
//
// The nouns, in reading order: [Vote], the answer of one node; [Decide], which turns votes
// into a [Decision]; [Attempt], which decides which nodes are asked, raised and released, and when;
// [Renewal] and [Release], which count the answers to the renewal and the release of a granted lease, and
// [GrantedToken], which reads its token from the records of the nodes.
//
// The adapter, the exhaustive search and the simulator run the same functions.
package quorum
