// Package quorum decides what the answers of N independent nodes amount to.
//
// What it does not give: it does no I/O, reads no clock, and knows nothing of
// mutual exclusion, which depends on time. It gives what does not: a token is
// granted when a majority has accepted the same value for one attempt. A node
// accepts a value once and for one attempt, and two majorities share a node; so
// no token is granted twice, and a later grant has a larger one.
//
// The nouns, in reading order: [Vote], the answer of one node; [Decide], which
// turns votes into a [Decision]; [Report], what a node says of itself;
// [EpochOf], the epoch that an attempt may carry; [Believe], [PlanRejoin] and
// [Floor], how a node that was emptied or restarted gets its vote back.
//
// The production code, the exhaustive check and the simulator run these same
// functions.
package quorum
