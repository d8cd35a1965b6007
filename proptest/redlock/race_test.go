//go:build race

package redlock

// The search shares nothing between goroutines, and the race detector makes it
// ten times slower: make prop runs all of it without.
const raced = true
