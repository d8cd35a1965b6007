//go:build !race

package proptest

const raced = false
