package work

import (
	"context"

	"github.com/leased-project/leased/bench/results"
)

func measureContended(ctx context.Context, b *bench, t *target, s *results.Sample) error { return nil }
func measureHold(ctx context.Context, b *bench, t *target, s *results.Sample) error      { return nil }
func measureFailover(ctx context.Context, b *bench, t *target, s *results.Sample) error  { return nil }
