// Package peers calls the APIs of other members: to join a cluster, to publish the
// own address, and to forward HTTP requests.
//
// It does not find members: it calls the addresses that the operator gave, and
// those that members have published in the Raft log.
//
// Files, in reading order:
//
//   - client.go: [Client], and its connections.
//   - join.go: how a new member joins a cluster.
//   - announce.go: how a member publishes its address.
package peers
