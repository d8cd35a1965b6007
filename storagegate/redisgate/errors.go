package redisgate

import "errors"

// ErrRing says that a gate was made over a *redis.Ring.
var ErrRing = errors.New("a redis.Ring cannot be gated: when a server is gone, its keys move to one that lacks their marks, " +
	"and stale writes pass; use a Redis Cluster, or a server with a replica")
