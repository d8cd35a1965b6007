// Package audit records who did what, as lines of JSON in a file.
//
// It does not guarantee that every line reaches the file: Write never blocks, and
// lines that do not fit into the queue, or cannot be written, are lost and counted.
// The file is not synced after each line, so a power failure can lose the last lines.
// Go clients that acquire leases directly from the Redis nodes do not appear.
//
// Files, in reading order:
//
//   - record.go: [Record], one line, and its [Event].
//   - calls.go: [Caller], the user and the address of a call, and what is recorded of it.
//     Package calls has the event of each call.
//   - log.go: [Log], the queue in front of the file.
//   - writer.go: the goroutine that writes the file.
package audit
