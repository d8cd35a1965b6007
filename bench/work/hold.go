package work

import (
	"context"
	"slices"
	"time"

	"github.com/leased-project/leased/bench/meter"
	"github.com/leased-project/leased/bench/results"
	"github.com/leased-project/leased/internal/load"
)

// settleTime passes before the memory of the servers is read, so that followers have
// applied everything.
const settleTime = 2 * time.Second

// measureHold measures how long it takes to hold many leases in one session, and the
// memory of each server for a lease.
func measureHold(ctx context.Context, b *bench, t *target, s *results.Sample) error {
	if b.Leases != 0 {
		s.Params["leases"] = b.Leases
	}
	leases := s.Params["leases"]
	m := meter.New(t.peer.Pids)
	pids := t.peer.Pids()
	before, grown := memoryOf(pids), []int64(nil)
	options := load.Options{Prefix: s.Work + "/", Abandon: true, Begin: m.Begin, End: func() {
		m.End()
		time.Sleep(settleTime)
		grown = memoryOf(pids)
	}}
	result, err := load.Run(ctx, t.peer, load.Hold{Leases: leases, Workers: s.Params["workers"], Clients: 1}, options)
	if err != nil {
		return err
	}
	fill(s, result, m.Usage())
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

func memoryOf(pids []int) (bytes []int64) {
	for _, pid := range pids {
		bytes = append(bytes, meter.Memory(pid))
	}
	return bytes
}
