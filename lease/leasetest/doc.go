// Package leasetest is for tests of engines: the conformance suite that every
// engine passes, and clocks that can be suspended or set.
//
// It does not test speed, and it does not replace the tests of an engine's own
// faults: package proptest and the engines have those.
//
// The nouns: [Subject], [Run], [Clock], [StoppedClock].
package leasetest
