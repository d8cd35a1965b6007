// Package virtual runs the product itself under faults, in virtual time: hours
// of a cluster in seconds.
//
// What it does not give: a seed that replays. The schedule of faults is drawn by
// rapid and can be run again and shortened; which goroutine runs first within a
// moment is not. Nor real disks, sockets and processes.
//
// Each history is a bubble of testing/synctest. In it run
//
//   - the correctness mode: raftstore nodes with the engine hashicorp/raft, on
//     its in-memory transport, with a log in memory that outlives a node;
//   - the efficiency mode: redlockadapter with go-redis and the Lua scripts, on
//     miniredis;
//   - lease.Client, each with a clock of its own, and memgate in front of what
//     they change.
//
// Virtual are all timers, timeouts, deadlines and delays of these, and the
// clocks of clients and Redis servers, which can be set, stopped and made to run
// at another rate. The nodes of the correctness mode read the bubble's clock;
// they are not given one that runs wrong. Replaced are network, disk, and what a
// Redis server says of itself (INFO), which miniredis does not know.
// Unlike in Redis, a clock of miniredis that is set back makes no key live
// longer. A process is paused at its border: it says and hears nothing, though
// its timers fire.
//
// A bubble has three rules that shape the code. Time stands still while anyone
// waits for a mutex, so that no lock of the product may be a mutex that is held
// over I/O. Every goroutine must end, so that leadership is not transferred
// beside a crash: the engine may then never answer (hashicorp/raft 498). Timers
// belong to a bubble, so that pools of them are emptied between two.
//
// The nouns, in reading order: story, which tells package property what happens;
// process and worker, who use leases; registers, what they change; cluster,
// network, disk and witness; fleet, cable and weather; fault.
package virtual
