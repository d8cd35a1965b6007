// Package refusals tells the service which writes gates have refused.
//
// A write that is refused as stale means that a holder went on writing after another one
// had got the lock: the gate has protected the data, but somebody should look at the
// holder. The service adds the report to the history of the lock, which the dashboard and
// LeaseService.History show, and counts it in its metrics.
//
// A report is a hint and not a proof: anyone who may acquire the lock can send one, and
// reports are lost while the service cannot be reached. No gate depends on them.
//
// The noun is [Reporter]. One Reporter serves any number of gates:
//
//	reporter := refusals.New(client)
//	gate.Audit(reporter.Audit("sql"))
package refusals
