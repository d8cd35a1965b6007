//go:build race

package redlock

// The search has no shared state, and the race detector makes it ten times slower.
const raced = true
