package demo

import (
	"fmt"
	"time"

	"github.com/leased-project/leased/lease"
)

// team is a group of workers that use the same locks.
type team struct {
	name string
	// locks are the names of the locks, without the prefix of the demo.
	locks []string
	// hold is the longest time that a worker holds a lock; rest is the longest time
	// between two locks.
	hold, rest time.Duration
	// options are the options of each acquisition.
	options []lease.AcquireOption
}

// teams share out the workers in this order. Locks below report/ and cache/ are in
// efficiency mode if the service has Redis nodes.
var teams = []team{
	{name: "checkout", locks: numbered("account/%d", 1001, 12), hold: 400 * time.Millisecond,
		rest: 400 * time.Millisecond},
	{name: "warehouse", locks: []string{"stock/berlin", "stock/osaka", "stock/denver"}, hold: 900 * time.Millisecond,
		rest: 300 * time.Millisecond},
	{name: "reports", locks: []string{"report/daily", "report/weekly", "report/churn", "report/audit"},
		hold: 3 * time.Second, rest: time.Second},
	{name: "edge", locks: []string{"cache/homepage", "cache/prices", "cache/search", "cache/menu"},
		hold: 300 * time.Millisecond, rest: 700 * time.Millisecond},
	{name: "billing", locks: []string{"invoice/2026-09", "invoice/2026-10", "invoice/2026-11"}, hold: 5 * time.Second,
		rest: 2 * time.Second},
	{name: "render", locks: []string{"pool/gpu"}, hold: 6 * time.Second, rest: time.Second,
		options: []lease.AcquireOption{lease.WithPermits(2)}},
	{name: "catalog", locks: []string{"catalog/index"}, hold: 4 * time.Second, rest: 2 * time.Second,
		options: []lease.AcquireOption{lease.WithShared()}},
	{name: "backup", locks: []string{"backup/orders", "backup/users"}, hold: 12 * time.Second, rest: 3 * time.Second},
}

// fastPrefixes are the locks that the demo puts into efficiency mode.
var fastPrefixes = []string{"report/", "cache/"}

// The lock that one holder keeps, and the lock of the paused writer.
const (
	blockedLock = "deploy/production"
	ledgerLock  = "ledger/2026"
)

// numbered returns count names with consecutive numbers.
func numbered(format string, first, count int) (names []string) {
	for i := range count {
		names = append(names, fmt.Sprintf(format, first+i))
	}
	return names
}

// FastPrefixes returns the prefixes of the locks that belong in efficiency mode.
func FastPrefixes(prefix string) (all []string) {
	for _, p := range fastPrefixes {
		all = append(all, prefix+p)
	}
	return all
}
