// Package member runs one member of the service: the Raft node, the way to
// Redis, and the API, put together from settings.
//
// What it does not give: protection from an operator who empties the folder of
// a member and starts it again under its old name while no other member can be
// asked. Such a member has forgotten its votes. Where another member answers it
// is refused; remove it from the cluster first.
//
// The nouns, in reading order:
//
//   - [Member]: what runs; [Start] starts it, Stop hands over and ends it.
//   - identity: the name of a member, kept in its folder.
//   - formation: how members find each other and begin or join a cluster.
//   - certificates: TLS that can be reloaded.
//   - policing: how the policies of the file reach the cluster.
package member
