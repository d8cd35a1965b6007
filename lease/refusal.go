package lease

import (
	"context"
	"fmt"

	"github.com/leased-project/leased/internal/clientcore"
	"github.com/leased-project/leased/lease/engine"
)

// ReportRefusal tells the service that a gate refused a write, so that the history of
// the lock shows it. It changes no lease. An empty Holder is replaced by the name of the
// client. The error is ErrUnsupported if there is no service, and ErrForbidden if the
// user may not acquire the lock. Package telemetry/refusals reports the refused writes
// of a gate in the background.
func (c *Client) ReportRefusal(ctx context.Context, refusal Refusal) error {
	reporter, can := c.backend.(engine.RefusalReporter)
	if !can {
		return fmt.Errorf("report a refused write to %q: %w: only a service records refused writes", string(refusal.Resource),
			engine.ErrUnsupported)
	}
	if err := refusal.Resource.Validate(); err != nil {
		return fmt.Errorf("report a refused write: %w", err)
	}
	if refusal.Holder == "" {
		refusal.Holder = c.name
	}
	// After an uncertain outcome, a second call could count the write twice.
	again := func(err error) bool { return clientcore.Matches(err, ErrUnavailable) }
	err := c.askWhile(ctx, again, func(ctx context.Context) error { return reporter.ReportRefusal(ctx, refusal) })
	if err != nil {
		return fmt.Errorf("report a refused write to %q: %w", string(refusal.Resource), err)
	}
	return nil
}
