// Package proptest tests the guarantees of leased under faults.
//
// It does not prove the absence of bugs. It shows that the tests find known kinds of
// bugs. README.md lists what is checked, what is not, and how to reproduce a failure.
//
// The tests of this package compare raftstore/machine with package model, a naive
// implementation that shares no code with it: generator_test.go draws commands,
// comparison_test.go applies them to both, cases_test.go and topology_test.go count
// the cases that were reached, replay_test.go and restore_test.go replay and restore
// logs. The other settings are subpackages.
package proptest
