//go:build unix && race

package e2e

// The binary is built with the race detector if the tests are.
func init() { buildFlags = append(buildFlags, "-race") }
