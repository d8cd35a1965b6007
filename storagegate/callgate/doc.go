// Package callgate fences calls whose effects no storage gate sees: it is what
// httpgate, grpcgate and connectgate have in common.
//
// What it does not give: a call is not a transaction. The mark is raised before
// the call runs and stays raised when the call fails, since a failed call may
// have written. Another process with marks of its own is not held back at all,
// and one that shares the marks is held back only until its token was checked:
// between that check and its write a newer holder fits. Where the data lives in
// a storage that has a gate, use that gate in the handler; what is here is then
// a first filter, and no more.
//
// Within one process the promise is whole: of the calls for one resource one
// runs at a time, its token is checked when its turn comes, and no call runs
// after one with a newer token has been admitted. The price is that a call that
// hangs holds up all later calls for its resource, until they give up waiting.
//
// The nouns, in reading order: [Marks], where the marks are kept: [Memory],
// which a restart forgets, or [Kept], in any storage gate; [Guard], which runs
// calls in turn.
package callgate
