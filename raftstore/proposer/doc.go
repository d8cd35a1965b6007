// Package proposer decides what goes into the next log entry. One entry is in
// flight at a time, and every operation that arrives meanwhile goes into the
// next one: throughput comes from that batching.
//
// It has no lock and no goroutine, and it does not talk to the log. The caller
// serializes the calls, proposes the batch that [Queue.Next] returns, and
// answers the operations. Package raftstore does this in production and
// proptest/sim in the simulator.
//
// The nouns: [Operation], [Batch] and [Queue], all in queue.go.
package proposer
