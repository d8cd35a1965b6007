// Package httpgate refuses stale writes in front of an HTTP handler.
//
// What it does not give: the middleware cannot see what the handler does. Where
// the handler's data lives in a storage that has a gate of its own, use that
// gate inside the handler ([Token] reads the token, [WriteError] answers the
// refusal); the middleware in front of it is then only a first filter, which
// saves the storage the stale requests. By itself it protects data that is
// reached through this one process and no other: two replicas of a service,
// each with its own middleware, hold nobody back from the same data.
//
// What it does, within one process: of the gated requests for one resource one
// runs at a time; its token is checked when its turn comes, the mark is raised
// and stored, and then the handler runs, all before the next one's turn. With
// marks in memory (callgate.Memory) a restart forgets them, and the first token
// that comes is believed; with marks in a storage (callgate.Kept over a bbolt
// gate, say) it does not.
//
// Which requests are gated: every write, that is every method but GET, HEAD,
// OPTIONS and TRACE. A read that carries a token raises the mark before the
// handler runs (it is the holder's Enter); a read without one passes.
//
// The handler must do its writes before it returns. One that goes on in another
// goroutine, and http.TimeoutHandler between the middleware and the handler,
// writes after its turn is over. A handler that hangs holds up its resource:
// give its work a deadline, and the waiting requests one with [Wait].
//
// The nouns, in reading order: [ResourceFunc], what a request writes to;
// [Gate], the middleware; [Problem], how a refusal is told.
// The sub-package proxy gates services that cannot be changed.
package httpgate
