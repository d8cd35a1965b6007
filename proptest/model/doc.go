// Package model is a naive second implementation of the replicated state machine.
//
// It is not fast, cannot be encoded or restored, and shares no code with
// raftstore/machine: it is written from docs/RAFT.md and docs/REDLOCK.md, so it does not
// repeat an error of the machine.
//
// Files, in reading order:
//
//   - model.go: [Model], a flat list of all requests ever made, which is searched in
//     full after every command;
//   - grant.go: the grant rule;
//   - policies.go, redis.go: policies and migrations, and the state of the Redis fleet;
//   - outcome.go: [Outcome] and [Event], the results of a command;
//   - logchecker.go: [LogChecker], which checks a stream of events against the
//     guarantees and relies on neither the machine nor the model;
//   - bothmodes.go: its checks of tokens across both modes.
//
// The tests compare raftstore/machine and lease/postgres with it: generator_test.go draws
// commands, comparison_test.go applies them to both, cases_test.go and topology_test.go
// count the cases that were reached, replay_test.go and restore_test.go replay and restore logs.
package model
