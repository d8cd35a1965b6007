package gatetest_test

import (
	"context"
	"testing"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/gatetest"
	"github.com/leased-project/leased/storagegate/memgate"
)

// The test of a gate calls Run with a function that creates an empty storage.
func ExampleRun() {
	testGate := func(t *testing.T) {
		gatetest.Run(t, func(t *testing.T) gatetest.Opener {
			var gate *memgate.Gate[string] // a storage in memory has one handle only
			return func(_ testing.TB, rule fencing.Rule) gatetest.Subject {
				if gate == nil {
					gate = memgate.New[string](rule)
				}
				return gatetest.Adapt(gate,
					func(_ context.Context, value *string, _ fencing.Resource, text string) error {
						*value = text
						return nil
					},
					func(ctx context.Context, resource fencing.Resource) (string, error) {
						value, _, err := gate.Get(ctx, resource)
						return value, err
					})
			}
		})
	}
	_ = testGate // in a test file: func TestGate(t *testing.T)
}
