// Package member runs one member of the service: the Raft node and the API,
// configured by settings.
//
// It does not protect against an operator who empties the data folder of a
// single member and starts it again: that is a new service, whose tokens start
// from 1. A larger cluster does not admit an emptied member until it was removed
// and has joined again.
//
// The nouns, in reading order:
//
//   - [Member]: the running member; [Start] starts it, Stop transfers leadership
//     and stops it.
//   - identity: the id of a member, stored in its data folder.
//   - formation: how members find each other and form or join a cluster.
//   - certificates: TLS that can be reloaded.
//   - credentials: the users that may call, and the secret of this member.
//   - policies: how the policies of the file reach the cluster.
package member
