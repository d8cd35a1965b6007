// Package observe shows what happens to locks: it implements the calls List, Watch,
// Overview, History and ReportRefusal of leased.v1.LeaseService.
//
// Nothing that it shows is a guarantee. A watch may merge changes in quick succession; the
// last state always appears. An overview is not a consistent snapshot. The history is not an
// audit log: it keeps recent events in bounded memory, drops the oldest, and starts again
// with each process.
//
// Files, in reading order:
//
//   - recorder.go: [Recorder], the one observer of the Raft machine of a member.
//   - timeline.go: the events of each lock, and their bounds; rate.go: grants per second.
//   - series.go: the time of any token, from few samples; file.go: the file that keeps
//     them across restarts.
//   - subscription.go: how the Recorder wakes watches.
//   - service.go: [Service]; history.go and list.go: History, ReportRefusal and List.
//   - watch.go: Watch, for one lock or a prefix, in both modes; events.go: the events that
//     lead from one status of a lock to the next.
//   - overview.go: Overview, what one caller sees of a scan; scan.go: the scan of all locks,
//     which all callers share; order.go: the orders of a list.
package observe
