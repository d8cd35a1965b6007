package observe

import (
	"context"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/lease/engine"
)

// Service implements the calls of leased.v1.LeaseService that show locks.
type Service struct {
	router   *routing.Router
	recorder *Recorder
	metrics  *metrics.Metrics
	ended    func(context.Context, fencing.Resource, *engine.Party) (string, error) // redlockadapter.Backend.Ended

	mu   sync.Mutex
	last *scan
	next engine.Instant // when last may be replaced

	redisMu   sync.Mutex
	inRedis   redisList
	redisNext engine.Instant
	listing   chan struct{} // closed when the running list is complete; nil if none is running
}

// NewService returns a Service. The recorder must be the Observer and the Times of the
// router's node.
func NewService(router *routing.Router, recorder *Recorder, metrics *metrics.Metrics) *Service {
	return &Service{router: router, recorder: recorder, metrics: metrics,
		ended: func(ctx context.Context, name fencing.Resource, p *engine.Party) (string, error) {
			backend, err := router.Redis.Backend()
			if err != nil {
				return "", err
			}
			return backend.Ended(ctx, name, p.Session, p.Nonce)
		}}
}
