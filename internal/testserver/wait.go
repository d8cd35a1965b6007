package testserver

import (
	"context"
	"testing"
	"time"
)

// Limit returns how long a test waits before it gives up. It does not measure speed. It is less
// than the time that go test has left, so the failure names the test.
func Limit(t testing.TB) time.Duration {
	limit := 3 * time.Minute
	if test, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if end, ok := test.Deadline(); ok {
			limit = min(limit, time.Until(end)-20*time.Second)
		}
	}
	return limit
}

// Context returns a context that ends with the test, or when the test hangs.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Limit(t))
	t.Cleanup(cancel)
	return ctx
}

// Eventually waits until a condition holds, and fails the test if it never does. what
// names the condition.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	ctx := Context(t)
	for !holds() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("timeout: " + what)
		}
	}
}

// Receive returns the next value of a channel. It fails the test if none comes in time, so
// that a test of broken code ends.
func Receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(Limit(t)):
		t.Fatal("nothing was received")
		panic("unreachable")
	}
}
