// Package metrics exports what a program does with locks and gates to Prometheus.
//
// The service has metrics of its own. They lack what only the client sees: the time that
// a program waits for a lock, including its connection to the service, and locks in
// efficiency mode, which a Go program takes from Redis directly.
//
// The noun is [Collector]. One Collector serves any number of clients and gates:
//
//	collector := metrics.New()
//	prometheus.MustRegister(collector)
//	c, err := client.Dial(ctx, endpoints, client.WithLeaseOptions(lease.WithHooks(collector.Hooks())))
//	gate.Audit(collector.Audit("sql"))
//
// No label contains the name of a lock or a holder, so the number of series is bounded.
// docs/METRICS.md lists them.
package metrics
