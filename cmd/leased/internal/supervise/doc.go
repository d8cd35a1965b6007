//go:build unix

// Package supervise runs a command under a lease.
//
// It cannot stop a process that leaves the command's process group, such as a
// daemon that calls setsid, or one in uninterruptible sleep, until the kernel ends
// it. Data that a process wrote before it died may still arrive late: that is why
// the command gets the token in its environment, for a gate.
//
// The process group of the command gets SIGTERM and then SIGKILL, both before the
// deadline of the lease. This needs no network. It does not need the supervisor
// either: a second process, the guard, does it if the supervisor is stopped, hangs
// or is killed. The command starts as a placeholder process that does nothing until
// the guard has confirmed that it knows the group and the deadline, so the command
// never runs unguarded. The caller releases the lease after the whole group is gone.
//
// The nouns, in reading order:
//
//   - [Command]: what to run; [Command.Run] runs it.
//   - schedule: when to send SIGTERM and SIGKILL.
//   - group: the process group of the command, and its terminal.
//   - guard: the second process; [Guard] is its main function.
//   - placeholder: the process that becomes the command; [Hold] is its main
//     function.
package supervise
