// Package results has the figures of a run of the benchmark, as they are stored.
//
// A file has single measurements only. Its readers compute medians, spreads and ratios.
package results

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"time"
)

// Run is one run of the benchmark.
type Run struct {
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"` // of the targets, such as "etcd": "3.7.3"
	Started  time.Time         `json:"started"`
	Command  string            `json:"command"`
	Commit   string            `json:"commit"`
	Samples  []Sample          `json:"samples"`
}

// Machine is where the run took place.
type Machine struct {
	CPU    string `json:"cpu"` // the model
	Cores  int    `json:"cores"`
	Memory int64  `json:"memory_bytes"`
	Disk   string `json:"disk"` // the device and the file system of the data folders
	Kernel string `json:"kernel"`
	Go     string `json:"go"` // the version of Go
}

// Sample is one measurement of one target.
type Sample struct {
	Work    string             `json:"work"`   // such as "W1"
	Target  string             `json:"target"` // such as "etcd"
	Params  map[string]int     `json:"params"` // workers, clients, processes, leases, nodes
	Round   int                `json:"round"`  // from 1
	Figures map[string]float64 `json:"figures"`
	Steal   float64            `json:"steal"` // part of the machine's time that the hypervisor took, 0 to 1
	Note    string             `json:"note,omitempty"`
}

// With returns the samples with s, in place of the sample of the same round if there is one.
func With(samples []Sample, s Sample) []Sample {
	for i, old := range samples {
		if old.Work == s.Work && old.Target == s.Target && old.Round == s.Round && maps.Equal(old.Params, s.Params) {
			samples[i] = s
			return samples
		}
	}
	return append(samples, s)
}

// Names of figures. A figure that a workload does not have is absent.
const (
	Rate       = "rate"            // pairs per second
	P50        = "p50_ms"          // of acquire
	P99        = "p99_ms"          // of acquire
	PairP50    = "pair_p50_ms"     // of acquire and release
	PairP99    = "pair_p99_ms"     // of acquire and release
	CPU        = "cpu_ms_per_1000" // CPU time of servers and client per 1,000 pairs
	CPUServers = "cpu_servers_ms_per_1000"
	Fairness   = "fairness" // most grants of a worker / fewest
	Errors     = "errors"

	TakeSeconds    = "take_s"                          // until all leases were held
	MemoryLeader   = "memory_bytes_per_lease_leader"   // of the node that uses most
	MemoryFollower = "memory_bytes_per_lease_follower" // mean of the other nodes

	FailoverMillis = "failover_ms"      // from the kill to the first grant that was requested after it
	LastMillis     = "failover_last_ms" // from the kill until every worker had a grant again

	// Figures of the curves.
	MemoryTotalLeader   = "memory_bytes_leader"
	MemoryTotalFollower = "memory_bytes_follower" // mean of the followers
	EntryOperations     = "operations_per_entry"  // operations in one entry of the Raft log
	PauseMillis         = "pause_ms"              // longest time without a grant while a snapshot is taken
	QuietMillis         = "quiet_ms"              // the same without a snapshot
	SnapshotMillis      = "snapshot_ms"           // time to take the snapshot
	SnapshotBytes       = "snapshot_bytes"
)

// Profile is the work of a sample with the shares of the processor time of a process. Its
// target is the client, the leader or a follower.
const Profile = "profile"

// Shares of a profile, 0 to 1.
const (
	SystemShare   = "system_calls"
	RuntimeShare  = "go_runtime"
	GRPCShare     = "grpc"
	ProtobufShare = "protobuf"
	RaftShare     = "raft_library"
	LeasedShare   = "leased"
	OtherShare    = "other"
)

// Read reads a file.
func Read(path string) (Run, error) {
	var run Run
	data, err := os.ReadFile(path)
	if err != nil {
		return run, err
	}
	if err := json.Unmarshal(data, &run); err != nil {
		return run, fmt.Errorf("read results %s: %w", path, err)
	}
	return run, nil
}

// Write writes a file.
func (r Run) Write(path string) error {
	data, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
