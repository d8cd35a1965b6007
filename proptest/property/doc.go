// Package property checks histories against the guarantees of leased.
//
// It does not run anything. The simulator, the cluster in virtual time and the
// cluster of real processes record their histories as [Event]s, and a [Checker]
// reports every event that violates a property of docs/GUARANTEES.md. Each
// property is implemented once, here, and means the same in every setting.
//
// Files, in reading order:
//
//   - event.go: [Event], one observation by a client, the service, the storage
//     or the fault injector;
//   - checker.go: [Checker], which takes events one by one;
//   - tokens.go: the properties of tokens, holders and replicas;
//   - gate.go: the properties of guarded writes;
//   - linear.go: [CheckLinearizable], a second check of guarded data, from what clients observed;
//   - draw.go: [Draw], a page with a history, and [Excerpt], the part of one that explains an event;
//   - report.go: [Violation], and [Report], the figures of one or more runs;
//   - publish.go: how tests pass reports to make prop, and read their budgets.
package property
