package metrics

import "slices"

// namespace is the prefix of all names.
const namespace = "leased"

// The types of a family.
const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
)

// family is one metric with all its label values.
type family struct {
	name    string // without the namespace
	kind    string
	labels  []string
	buckets []float64 // of a histogram
	help    string
}

var (
	// latencies are the buckets of operations, in seconds.
	latencies = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	// writes are the buckets of disks and networks, in seconds.
	writes = []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
	// long are the buckets of snapshots, in seconds.
	long = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	// sizes are the buckets of batches.
	sizes = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}
)

var byMode = []string{"mode"}

// families lists all metrics. docs/METRICS.md has the same table, which a test checks.
var families = slices.Concat(leaseFamilies, raftFamilies, redisFamilies, memberFamilies)

var leaseFamilies = []family{
	{"grants_total", counter, byMode, nil, "Leases granted, at once or after waiting."},
	{"acquire_errors_total", counter, []string{"mode", "code"}, nil,
		"Acquires that were answered with an error, by error code. A redirect to the leader is not counted, nor is a " +
			"unary call that was refused before it reached the lock, such as one without the right (see leased_calls_total)."},
	{"waits_total", counter, byMode, nil, "Acquires that had to wait for the lock."},
	{"time_to_grant_seconds", histogram, byMode, latencies,
		"Time from the arrival of an acquire at this member until its grant is ready to be sent, including the wait for " +
			"the lock."},
	{"handoff_seconds", histogram, byMode, latencies,
		"Time from the arrival at this member of the event that freed a lock (a release, break, expiry or the end of a " +
			"lock delay) until the grant of the next waiter is ready to be sent. " +
			"In efficiency mode only releases whose waiter is at the same member are measured."},
	{"renewals_total", counter, []string{"mode", "result"}, nil,
		"Renewals by callers, of a session in correctness mode and of a lease in efficiency mode. The result is renewed, " +
			"lost (the session or lease has ended) or failed (it may still be held)."},
	{"leases_ended_total", counter, []string{"mode", "cause"}, nil,
		"Leases that ended: released, expired, broken by an operator, or lost. In correctness mode, lost leases ended " +
			"with the restore of a snapshot. " +
			"In efficiency mode, lost means that a renewal found the lease gone, so a broken lease that its holder then " +
			"renews counts as lost too; the member that granted a lease counts its expiry, about one TTL later."},
	{"locks", gauge, nil, nil, "Locks in correctness mode that are held, waited for or delayed, as this member has " +
		"applied the log. Use max over the members."},
	{"holders", gauge, nil, nil, "Held leases in correctness mode, as this member has applied the log. Use max over " +
		"the members."},
	{"waiters", gauge, nil, nil, "Waiting acquires in correctness mode, as this member has applied the log. Use max " +
		"over the members."},
	{"longest_queue", gauge, nil, nil,
		"Waiters of the lock in correctness mode that has the most, as this member has applied the log. Use max over the " +
			"members."},
	{"sessions", gauge, nil, nil, "Open sessions in correctness mode, as this member has applied the log. Use max " +
		"over the members."},
	{"last_token", gauge, byMode, nil,
		"Largest fencing token: in correctness mode the last that was granted or skipped, in efficiency mode the largest " +
			"that a Redis node reported at the last check."},
	{"gate_refusals_total", counter, []string{"gate", "reason"}, nil,
		"Writes that gates refused and that were reported to this member, by the kind of gate and the reason. Kinds and " +
			"reasons that the service does not know are other."},
	{"calls_total", counter, []string{"method", "code"}, nil,
		"Calls of the API by gRPC and HTTP, by method and error code; the code of a successful call is ok. A stream " +
			"counts when it ends, and its operations do not count."},
}

var raftFamilies = []family{
	{"raft_commit_seconds", histogram, nil, latencies,
		"Time from the proposal of a log entry by this leader until it was committed and applied."},
	{"raft_entry_operations", histogram, nil, sizes, "Operations in one log entry that this leader has committed."},
	{"raft_fsync_seconds", histogram, nil, writes, "Time to write log entries to disk, with the fsync."},
	{"raft_snapshot_seconds", histogram, nil, long, "Time to write a snapshot of the state to disk."},
	{"raft_snapshot_size_bytes", gauge, nil, nil,
		"Size of the last snapshot that this member has written since it started."},
	{"raft_leader_changes_total", counter, nil, nil,
		"Elections of a leader that this member has seen. All members see the same election: use max, not sum."},
	{"raft_is_leader", gauge, nil, nil, "1 if this member leads and serves, else 0."},
	{"raft_has_leader", gauge, nil, nil, "1 if this member knows a leader, else 0."},
	{"raft_term", gauge, nil, nil, "Raft term of this member."},
	{"raft_commit_index", gauge, nil, nil, "Index of the last log entry that this member knows to be committed."},
	{"raft_applied_index", gauge, nil, nil, "Index of the last log entry that this member has applied."},
	{"raft_last_index", gauge, nil, nil, "Index of the last entry in the log of this member."},
	{"raft_members", gauge, nil, nil, "Members of the cluster."},
	{"raft_voters", gauge, nil, nil, "Members of the cluster that vote."},
	{"raft_member_lag_entries", gauge, []string{"member"}, nil,
		"Log entries by which a member is behind this leader. Only the leader reports it, and only for members that have " +
			"answered it."},
}

var byNode = []string{"node"}

var redisFamilies = []family{
	{"redis_up", gauge, byNode, nil,
		"1 if this member reached the Redis node at its last check, about once a second, else 0."},
	{"redis_voting", gauge, byNode, nil, "1 if the Redis node votes, 0 if it is unreachable, empty, or in quarantine."},
	{"redis_call_seconds", histogram, byNode, writes, "Round trip of a batch of requests to a Redis node."},
	{"redis_errors_total", counter, byNode, nil, "Requests that a Redis node answered with an error, or not at all."},
	{"redis_quarantine_seconds", gauge, byNode, nil,
		"Time until a Redis node that lost its state may vote again, 0 if it votes."},
	{"redis_clock_skew_seconds", gauge, byNode, nil,
		"Time by which the clock of a Redis node is ahead of this member, beyond the round trip."},
	{"redis_nodes", gauge, nil, nil, "Redis nodes of the fleet, 0 if there is no efficiency mode."},
	{"redis_quorum", gauge, nil, nil, "Redis nodes that must vote for a lease."},
	{"efficiency_ready", gauge, nil, nil,
		"1 if this member can serve locks in efficiency mode: the log allows it and a quorum of the Redis nodes votes; " +
			"else 0."},
}

var memberFamilies = []family{
	{"migrations", gauge, nil, nil,
		"Prefixes of locks that are changing their mode. Their locks cannot be acquired meanwhile."},
	{"migration_age_seconds", gauge, nil, nil,
		"Time since this member first saw the oldest running migration, 0 if none is running."},
	{"certificate_expiry_timestamp_seconds", gauge, []string{"use"}, nil,
		"Time at which a certificate of this member expires: its own, or the first of the authorities that it trusts."},
	{"audit_lost_lines_total", counter, nil, nil, "Lines of the audit log that could not be written."},
	{"build_info", gauge, []string{"version", "commit", "goversion"}, nil,
		"1, with the version and the commit of the program, and the version of Go that built it."},
}
