// Package member runs one member of the service: the Raft node and the API, put
// together from settings.
//
// What it does not give: protection from an operator who empties the folder of
// the only member, or of one with bootstrap-expect 1, and starts it again. That
// begins a new service, whose tokens begin anew. An emptied member of a larger
// cluster is heard by nobody until it was removed and has joined again.
//
// The nouns, in reading order:
//
//   - [Member]: what runs; [Start] starts it, Stop hands over and ends it.
//   - identity: the name of a member, kept in its folder.
//   - formation: how members find each other and begin or join a cluster.
//   - certificates: TLS that can be reloaded.
//   - callers: who may call, and as whom this member calls others.
//   - policing: how the policies of the file reach the cluster.
package member
