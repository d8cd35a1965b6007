package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/redlockadapter"
)

// ErrConfig: a Config breaks a rule, which the error names.
var ErrConfig = errors.New("invalid server configuration")

// Efficiency is what provides the leases of the efficiency mode. A
// *redlockadapter.Backend is one.
type Efficiency interface {
	lease.Backend
	NodeStatuses(ctx context.Context) []redlockadapter.NodeStatus
}

// FloorRaiser is an engine that can be told to grant only tokens above one. A
// lock can move to an engine only if it is one: its tokens must keep growing.
type FloorRaiser interface {
	RaiseFloor(ctx context.Context, above fencing.Token) error
}

// Config is what a Server is made of. A zero field takes its default.
type Config struct {
	// Node is this member of the Raft cluster.
	Node *raftstore.Node
	// Feed must be the Observer of the Node too.
	Feed *Feed
	// Redis serves the efficiency mode. Nil: locks of that mode are refused.
	Redis Efficiency
	// RedisMaxTTL is MaxTTL of the Redis backend's Config. Default:
	// redlockadapter.DefaultMaxTTL.
	RedisMaxTTL time.Duration
	// Advertise is the address of the API that clients and other members are
	// told. Default: the address that is listened on.
	Advertise string
	// TLS, if not nil, is the certificate of the API, and what else is asked of
	// clients.
	TLS *tls.Config
	// PeerTLS is how the APIs of other members are reached now. Nil, or one that
	// returns nil: without TLS.
	PeerTLS func() *tls.Config
	// Users are those who may call the API. Nil: whoever reaches it.
	Users *Users
	// Secret is what this member shows to the APIs of the others now. Nil, or
	// one that returns nothing: no secret.
	Secret func() string
	// RaftFloor and RedisFloor replace the engines' own RaiseFloor.
	RaftFloor, RedisFloor FloorRaiser
	// Version is what Status tells.
	Version string
	// Clock is lease.SystemClock by default, Logger slog.Default.
	Clock  lease.Clock
	Logger *slog.Logger
}

func (c Config) filled() (Config, error) {
	if c.Node == nil {
		return c, fmt.Errorf("%w: there is no node", ErrConfig)
	}
	if c.Feed == nil {
		return c, fmt.Errorf("%w: there is no feed; make one with NewFeed, and let it be the node's Observer too", ErrConfig)
	}
	if c.RedisMaxTTL == 0 {
		c.RedisMaxTTL = redlockadapter.DefaultMaxTTL
	}
	if c.PeerTLS == nil {
		c.PeerTLS = func() *tls.Config { return nil }
	}
	if c.Secret == nil {
		c.Secret = func() string { return "" }
	}
	if c.Clock == nil {
		c.Clock = lease.SystemClock()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.RaftFloor == nil {
		c.RaftFloor, _ = any(c.Node).(FloorRaiser)
	}
	if c.RedisFloor == nil {
		c.RedisFloor, _ = c.Redis.(FloorRaiser)
	}
	return c, nil
}

// CheckAddress refuses to listen where strangers could reach an API that asks
// for no certificate and encrypts nothing.
func CheckAddress(address string, config *tls.Config) error {
	if config != nil {
		return nil
	}
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return fmt.Errorf("%w: address (%s): %w", ErrConfig, address, err)
	}
	if resolved.IP == nil || !resolved.IP.IsLoopback() {
		return fmt.Errorf("%w: address (%s) is not a loopback address, and there is no TLS: anyone who reaches the port could take and break leases; "+
			"give a certificate and key, or listen on 127.0.0.1", ErrConfig, address)
	}
	return nil
}
