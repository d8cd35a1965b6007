// Package httpgate is HTTP middleware that refuses stale writes.
//
// Limits: the middleware cannot see what the handler writes. If the handler's
// data lives in a storage that has a gate, use that gate in the handler
// ([Token] reads the token, [WriteError] sends the refusal); the middleware is
// then only a first filter that keeps stale requests from the storage. Without a
// storage gate, the middleware protects data that is written through this one
// process only: two replicas with their own middleware do not hold each other
// back.
//
// Within one process, gated requests for one resource run one at a time. When a
// request gets the resource, its token is checked, the mark is raised and
// stored, and the handler runs. Marks in memory (callgate.Memory) are lost on a
// restart, and the first token after it is admitted; marks in a storage
// (callgate.Stored, for example over a bbolt gate) are not lost.
//
// Every write is gated, that is every method except GET, HEAD, OPTIONS and
// TRACE. A read with a token raises the mark before the handler runs: it is the
// holder's Enter. A read without a token passes.
//
// The handler must finish its writes before it returns. A handler that continues
// in another goroutine, or that runs under http.TimeoutHandler, may write after
// the request has released its resource. A handler that hangs blocks its
// resource: set a deadline for its work, and limit waiting requests with [Wait].
//
// Types, in reading order: [ResourceFunc], which names the resource of a
// request; [Gate], the middleware; [Problem], the body of a refusal. The command
// `leased gate proxy` gates services that cannot be changed.
package httpgate
