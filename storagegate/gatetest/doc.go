// Package gatetest is the test suite that every storage gate passes. It checks
// the rule, the atomicity of check and write, and what the gate reports.
//
// Limits: the suite does not cut the power, and it does not show that a storage
// keeps data that it has confirmed. Each gate tests that itself.
//
// Types, in reading order: [Subject], one open handle on a storage behind a
// gate; [Pauser], [Crasher] and [Resetter], additional abilities of some subjects;
// [Opener], which opens handles on one storage; [Adapt], which makes a subject of a gate
// that works in transactions; [Run], the suite; [Compare], a benchmark of a
// gated write.
package gatetest
