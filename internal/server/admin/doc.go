// Package admin implements the calls of operators: leased.v1.PolicyService,
// RedisService and ClusterService.
//
// It does not complete migrations and changes of the Redis fleet: it records them in
// the Raft log, and the leader's fleet.Keeper completes them.
//
// Files, in reading order:
//
//   - service.go: [Service].
//   - policies.go: policies, migrations and the topology.
//   - fleet.go: the Redis fleet; nodes.go: the state of its nodes.
//   - status.go: Status and Health of this member.
//   - cluster.go: the state of all members.
//   - members.go: the members of the Raft cluster.
//   - snapshot.go: backup and restore.
//   - build.go: the running build, and the formats that it reads.
package admin
