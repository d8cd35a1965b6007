// Package virtual runs whole clusters under faults in virtual time: hours of a cluster in
// seconds.
//
// A run cannot be replayed exactly. rapid draws and shrinks the schedule of faults, but
// the order of goroutines at one moment is not controlled. Disks, sockets and processes
// are not real.
//
// Each run is a bubble of testing/synctest. It contains
//
//   - the correctness mode: raftstore nodes with hashicorp/raft on its in-memory
//     transport, and an in-memory log that outlives the node that writes it;
//   - the efficiency mode: redlockadapter with go-redis and the Lua scripts, on
//     miniredis;
//   - lease.Client instances, each with a clock of its own, and memgate in front of the
//     data that they change.
//
// All timers and timeouts are virtual, and so are the clocks of clients and Redis
// servers, which faults can set, stop and speed up. The nodes of the correctness mode
// read the clock of the bubble. Network, disk and the INFO of a Redis server are
// replaced. Unlike in Redis, setting the clock of miniredis back does not prolong keys. A
// paused process sends and receives nothing, although its timers fire.
//
// A bubble imposes three rules. Time stands still while a goroutine waits for a mutex, so
// production code must not hold a mutex during I/O. Every goroutine must end, so
// leadership is not transferred during a crash: the Raft library may then never answer
// (hashicorp/raft 498). Timers belong to a bubble, so pools of them are emptied between
// runs.
//
// Files, in reading order: correctness_test.go and efficiency_test.go, the tests;
// history_test.go, the recorded history; process_test.go, worker_test.go, delivery_test.go and
// failover_test.go, the clients and their calls; clock_test.go, the clock of a host;
// register_test.go, the data; cluster_test.go, network_test.go, disk_test.go,
// snapshots_test.go, logobserver_test.go and logbuffer_test.go, the Raft cluster;
// redisfleet_test.go, rdb_test.go and link_test.go, the Redis servers, their data and their
// connections; faults_test.go, clusterfaults_test.go and faultcount_test.go, the faults.
package virtual
