// Package gateproxy is a reverse proxy that refuses stale writes to an HTTP service
// that cannot be changed.
//
// Limits:
//
//   - Check and write are not one step. The proxy sees requests and responses,
//     not what the service does in between. So it sends only one gated request
//     for a resource at a time.
//   - If there is no response (a timeout, a broken connection, a crash of the
//     proxy), the service may still be processing the request and may write at
//     any later time. A newer token must not be admitted before that is over. So
//     the resource stays closed until the response arrives or an operator
//     reopens it. The proxy gives up availability for safety there.
//   - A response must mean that the service is done. That is not true for a
//     service that responds 202 and continues, or that is itself a gateway. By
//     default, the status codes of gateways such as 502 and 504 therefore count
//     as an unknown outcome.
//   - Clients that reach the service without the proxy are not fenced, and
//     neither are clients of a second proxy with its own journal.
//   - The content of an upgraded connection (a WebSocket) cannot be fenced.
//     Upgrades are refused, except that an offer of HTTP/2 (h2c) is ignored.
//
// A gated request waits for its resource. In one transaction of the journal, a
// bbolt file, the proxy checks the token, raises the mark and records the
// request as in flight. Then it sends the request, once, on a new connection.
// When it has read the whole response, it removes the record from the journal
// and releases the resource. Every write thus waits for the disk twice. A record
// that is found when the proxy starts is a request with an unknown outcome; its
// resource is closed.
//
// Every write is gated, that is every method except GET, HEAD, OPTIONS and
// TRACE, and also those if they override the method. A read with a token raises
// the mark before it is sent: it is the holder's Enter. A read without a token
// passes.
//
// Types, in reading order: [Config]; [Proxy], the handler; [Flight], a request
// with an unknown outcome; [Proxy.Admin], the handler with which an operator
// lists flights and reopens resources.
package gateproxy
