// Package history remembers what happened to locks, and when leases were granted.
//
// It is not an audit log: it keeps recent events in bounded memory, drops the oldest, and
// starts again with each process. Nothing depends on it except what people read.
//
// Files, in reading order:
//
//   - recorder.go: [Recorder], which follows the Raft machine of a member.
//   - timeline.go: the events of each lock, and their bounds.
//   - rate.go: grants per second.
//   - series.go: the time of any token, from few samples; file.go: the file that keeps
//     them across restarts.
//   - service.go: the calls History and ReportRefusal.
package history
