// Command leased-torture injects faults into a cluster of real leased processes
// and checks the recorded history against the promises of the service.
//
// It is a program of its own so that leased links no test code. It does not
// prove the promises: it looks for a counterexample. Package proptest/torture has
// the workload, the faults and the checker.
package main
