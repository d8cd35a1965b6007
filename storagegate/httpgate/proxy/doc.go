// Package proxy is a reverse proxy that refuses stale writes in front of an
// HTTP service that cannot be changed.
//
// What a proxy cannot promise:
//
//   - Check and write are not one step. The proxy knows what it has sent and what
//     was answered; what the service does in between, it cannot see. So it lets
//     only one gated request for a resource be under way at a time.
//   - If no answer comes (a timeout, a broken connection, a crash of the proxy),
//     the request may still be at work in the service, and may write at any later
//     moment. No newer token can be let through before that is over. So the
//     resource stays closed until the answer does come, or an operator decides.
//     The proxy trades availability for safety there, and cannot do otherwise.
//   - An answer must mean that the work is over. A service that answers 202 and
//     goes on, or that is itself a gateway, does not keep to that. By default 502
//     and 504 are taken for "unknown", since gateways send them for requests that
//     may still be at work behind them.
//   - Whoever reaches the service on another way is not held back, and neither is
//     a second proxy with a journal of its own.
//   - What happens inside an upgraded connection (a websocket) cannot be fenced.
//     Upgrades are refused.
//
// What it does: a gated request waits for the turn of its resource. In one
// transaction of its journal, a bbolt file, the token is checked, the mark is
// raised and the request is noted as in flight; when that is on disk the request
// is sent, once, on a connection of its own. When the whole answer has been read
// the note is removed, also on disk, and the turn ends. A note that is found when
// the proxy starts is a request whose end nobody saw: its resource is closed.
// Every write thus waits for the disk twice.
//
// Which requests are gated: every write, that is every method but GET, HEAD,
// OPTIONS and TRACE, and those too if they carry a header that overrides the
// method. A read with a token raises the mark before it is sent (it is the
// holder's Enter); a read without one passes.
//
// The nouns, in reading order: [Config]; [Proxy], the handler; [Flight], a
// request whose end is not known; [Proxy.Admin], where an operator sees flights
// and reopens resources.
package proxy
