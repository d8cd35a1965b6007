//go:build unix

// Package supervise runs a command under a lease.
//
// What it does not give: a process that leaves the command's process group, as
// a daemon does with setsid, is out of its reach, and so is one in
// uninterruptible sleep, which dies when the kernel lets it. What a process
// wrote before it died may still arrive late: that is what the token in its
// environment, and a gate, are for.
//
// What it gives: the process group of the command is told to end (SIGTERM)
// before the deadline of the lease, and is killed (SIGKILL) before that
// deadline too. This needs no network, and does not need the supervisor itself
// either: a guard, a second process, does it if the supervisor is stopped,
// hangs or is killed. The command is held, as a process that does nothing yet,
// until the guard has answered that it knows the group and the deadline: there
// is no moment at which it runs unguarded. The lease is given back only after
// the whole group is gone.
//
// The nouns, in reading order:
//
//   - [Command]: what to run; [Command.Run] runs it.
//   - schedule: when to ask and when to kill.
//   - group: the processes of the command.
//   - guard: the other process; [Guard] is its main function.
//   - held: the process that becomes the command; [Hold] is its main function.
package supervise
