package redisgate

import "errors"

// ErrNotDurable means that marks on the server can be lost. The error of Verify is
// a *VerifyError that says why.
var ErrNotDurable = errors.New("marks on this Redis can be lost, and stale writes would then be admitted")

// ErrRing is returned by a gate over a *redis.Ring.
var ErrRing = errors.New("a redis.Ring cannot be gated: when a server fails, its keys move to a server without their marks, " +
	"which admits stale writes; use a Redis Cluster, or a server with a replica")
