// Package gocronlock runs the jobs of gocron v2 under leases, so that of several
// schedulers one runs a job at a time. A job gets its lease, and its context ends when
// the lease does.
//
// What it does not give: a job whose process was paused does not notice that it lost its
// lease before it continues. Its writes must carry the token of the lease to a gate,
// which refuses them after the next run has begun to write. And a job that is shorter
// than the difference between the clocks of two hosts runs on both, one after the other,
// unless MinHold is longer than this difference.
//
// Locker takes a lease for each run. Elector holds one lease while its scheduler is the
// leader. Both have a method Task, which makes a gocron.Task of a function that takes
// the lease.
package gocronlock
