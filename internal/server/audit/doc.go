// Package audit records who did what, as lines of JSON in a file.
//
// It does not guarantee that every line reaches the file: Write never blocks, and
// what does not fit into the queue, or cannot be written, is lost and counted. The
// file is not synced after each line, so that a power failure can lose the last
// ones. Go clients that acquire leases from the Redis nodes directly do not appear.
//
// Files, in reading order:
//
//   - record.go: [Record], one line, and its [Event].
//   - calls.go: [Caller], the user and the address of a call, and what is recorded of it.
//     Package calls has the event of each call.
//   - log.go: [Log], the queue in front of the file.
//   - writer.go: the goroutine that writes the file.
package audit
