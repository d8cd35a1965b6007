// Package callgate fences calls whose effects no storage gate sees. It is the
// common part of httpgate, grpcgate, connectgate and `leased gate proxy`.
//
// Limits: a call is not a transaction. The mark is raised before the call runs
// and stays raised if the call fails, because a failed call may have written.
// A process with its own marks is not held back at all. A process that shares
// the marks is held back only until its token is checked: a newer holder can
// write between that check and its write. If the data lives in a storage that
// has a gate, use that gate in the handler; this package is then only a first
// filter.
//
// Within one process the guarantee is complete: calls for one resource run one
// at a time, the token is checked when the call gets the resource, and no call
// runs after a newer token has been admitted. In return, a call that hangs
// blocks all later calls for its resource until they stop waiting.
//
// Types, in reading order: [Marks], where the marks are stored: [Memory], which
// a restart loses, or [Stored], in any storage gate; [Guard], which runs the
// calls; [Carried], the token that a call carries; [Stream], a call with many
// messages. [RPCCode], [RPCDetail] and [RPCRefusal] are what the errors of grpcgate and
// connectgate have in common.
package callgate
