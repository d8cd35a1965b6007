package testserver

import "testing"

// SkipIfShort skips a test that starts processes, in make quick.
func SkipIfShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts processes")
	}
}
