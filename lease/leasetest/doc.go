// Package leasetest is for tests: a backend in memory, a clock that can be
// suspended, and the conformance suite that every backend passes.
//
// What it does not give: [Memory] keeps nothing when the process ends and knows
// no network, so it cannot stand in for a service in production. It runs the
// same state machine as the correctness mode, so grants, queues and tokens
// behave as they do there.
//
// The nouns: [Memory], [Clock], [Subject] and [Run].
package leasetest
