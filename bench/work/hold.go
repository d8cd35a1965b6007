package work

import (
	"context"
	"slices"
	"time"

	"github.com/leased-project/leased/bench/results"
	"github.com/leased-project/leased/internal/load"
)

// settleTime passes before the memory of the servers is read, so that followers have
// applied everything.
const settleTime = 2 * time.Second

// measureHold measures how long it takes to hold many leases in one session, and the
// memory of each server for a lease.
func measureHold(ctx context.Context, b *bench, t *target, s *results.Sample) error {
	if limit := t.kind.MaxLeases; limit != 0 {
		s.Params["leases"] = min(limit, s.Params["leases"])
	}
	leases := s.Params["leases"]
	before, err := t.cluster.Memory(ctx)
	if err != nil {
		return err
	}
	var grown []int64
	work := load.Work{Kind: load.Hold, Leases: leases, Workers: s.Params["workers"], Clients: 1}
	options := load.Options{Prefix: s.Work + "/", Abandon: true}
	result, err := t.load(ctx, s, work, options, func() (err error) {
		time.Sleep(settleTime)
		grown, err = t.cluster.Memory(ctx)
		return err
	})
	if err != nil {
		return err
	}
	for i := range grown {
		grown[i] -= before[i]
	}
	slices.Sort(grown)
	most, others := grown[len(grown)-1], grown[:len(grown)-1]
	s.Figures[results.TakeSeconds] = result.Elapsed.Seconds()
	s.Figures[results.MemoryLeader] = float64(most) / float64(leases)
	if len(others) > 0 {
		var sum int64
		for _, bytes := range others {
			sum += bytes
		}
		s.Figures[results.MemoryFollower] = float64(sum) / float64(len(others)) / float64(leases)
	}
	return nil
}
