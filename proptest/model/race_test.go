//go:build race

package model_test

// The tests share nothing between goroutines, and the race detector makes them ten times
// slower: TestMain makes fewer runs.
const raced = true
