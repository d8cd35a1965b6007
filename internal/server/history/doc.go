// Package history remembers what happened to locks, and when leases were granted.
package history
