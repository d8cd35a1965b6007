// Package sim is a deterministic simulator: it runs the pure cores of leased under
// faults, in virtual time, on one goroutine, from one seed. The same [Plan] produces
// the same history, to the last event.
//
// It has no Raft library, sockets, disks or goroutines, so it does not test them.
// Production code in it: internal/clientcore, internal/remote/heartbeat, raftstore/machine, raftstore/lessor,
// raftstore/hub, raftstore/proposer, redlockadapter/quorum and recovery, internal/server/fleet, fencing,
// and the types of lease/engine. Simulated: a small Raft, the network, clocks, and Redis nodes, which
// are the model of package redisnode.
//
// Files, in reading order:
//
//   - plan.go: [Plan], the processes of a run and its [Fault]s; [Setting], a service
//     without Redis, a standalone fleet, or a service with both modes;
//   - world.go, run.go: World, the event loop, and [Run];
//   - clock.go, network.go: the clock of each process, and message delivery;
//   - client.go: a client that acquires, enters, reads, writes and releases; holder.go: its
//     leases, as internal/clientcore decides; raftclient.go, link.go,
//     redisclient.go and standaloneclient.go: the engines and connections; router.go: the topology that it follows;
//   - cluster.go, replica.go, replication.go: the Raft cluster and its operator;
//   - leader.go: the leader, on lessor, hub and proposer; commitlog.go: checks in log order;
//   - redisserver.go, keeper.go: Redis servers, and the leader's side of the fleet;
//   - storage.go: the gate and the data;
//   - faults.go, operator.go: how faults and operator actions happen.
package sim
