package redisgate

import "errors"

// ErrRing is returned by a gate over a *redis.Ring.
var ErrRing = errors.New("a redis.Ring cannot be gated: when a server fails, its keys move " +
	"to a server without their marks, which admits stale writes; use a Redis Cluster, or a server with a replica")
