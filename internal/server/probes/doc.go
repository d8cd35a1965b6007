// Package probes tells process supervisors and load balancers whether a member is
// alive and ready: GET /livez and GET /readyz. The port of the probes also serves the
// metrics, so that Prometheus needs neither a user nor a certificate there.
//
// The answers need no user and no certificate. They contain whether the member can
// serve and why not, and nothing about locks, sessions or users.
//
// Files, in reading order:
//
//   - handler.go: [Ready], and [Handler] with the two paths.
//   - listener.go: [Listener], a port of its own for them and the metrics.
package probes
