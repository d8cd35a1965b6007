//go:build race

package proptest

// The tests share nothing between goroutines, and the race detector makes them ten times
// slower: TestMain makes fewer runs.
const raced = true
