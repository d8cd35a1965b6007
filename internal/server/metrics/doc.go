// Package metrics counts and measures what one member of the service does, for
// Prometheus: GET /metrics.
//
// No label has the name of a lock, a holder, a user or a session, and no caller can add
// label values: all label sets are bounded. docs/METRICS.md lists all metrics.
//
// Only the leader counts the counters of correctness mode, so the sum over all members is
// right. The member that served the call counts the counters of efficiency mode. Go
// clients that talk directly to the Redis nodes count in their own process.
//
// Files, in reading order:
//
//   - families.go: the table of all metrics, with their help texts.
//   - metrics.go: [Metrics], a separate registry for each member.
//   - record.go: what the services report while they serve a call.
//   - hooks.go: what the engines report.
//   - calls.go: the calls of the API, by method and error code.
//   - state.go: [Source], which is read at each scrape.
package metrics
