// Package refusals reports the writes that gates refuse to the service.
//
// A refused write means that a holder went on writing after its lease had passed to
// another one: the gate has protected the data, and somebody should know. The service
// adds the report to the history of the lock, which the dashboard and
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
