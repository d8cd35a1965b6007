package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// ErrConfig: a Config breaks a rule, which the error names.
var ErrConfig = errors.New("invalid server configuration")

// Config is what a Server is made of. A zero field takes its default.
type Config struct {
	// Node is this member of the Raft cluster.
	Node *raftstore.Node
	// Feed must be the Observer of the Node too.
	Feed *Feed
	// Redis is the fleet of the efficiency mode that a cluster without one gets.
	// A cluster that has a fleet keeps it. Default: none.
	Redis engine.Fleet
	// RedisOptions returns how a Redis node is reached: credentials, TLS. Default:
	// the address alone.
	RedisOptions func(address string) *redis.Options
	// Advertise is the address of the API that clients and other members are
	// told. Default: the listener's address.
	Advertise string
	// TLS, if not nil, has the certificate of the API, and says which certificates
	// clients need.
	TLS *tls.Config
	// PeerTLS returns how the APIs of other members are reached. Nil, or one that
	// returns nil: without TLS.
	PeerTLS func() *tls.Config
	// Users are the callers that are let in. Nil: everyone.
	Users *Users
	// Secret returns the secret that this member shows to the APIs of the others.
	// Nil, or one that returns "": no secret.
	Secret func() string
	// Version is the version of the program, for Status.
	Version string
	// Clock is lease.SystemClock by default, Logger slog.Default.
	Clock  engine.Clock
	Logger *slog.Logger
}

func (c Config) filled() (Config, error) {
	if c.Node == nil {
		return c, fmt.Errorf("%w: there is no node", ErrConfig)
	}
	if c.Feed == nil {
		return c, fmt.Errorf("%w: there is no feed; make one with NewFeed, and let it be the node's Observer too", ErrConfig)
	}
	if err := c.Redis.Validate(); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if c.RedisOptions == nil {
		c.RedisOptions = func(address string) *redis.Options { return &redis.Options{Addr: address} }
	}
	if c.PeerTLS == nil {
		c.PeerTLS = func() *tls.Config { return nil }
	}
	if c.Secret == nil {
		c.Secret = func() string { return "" }
	}
	if c.Clock == nil {
		c.Clock = engine.SystemClock()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, nil
}

// CheckAddress refuses to listen where strangers could reach an API that needs no
// certificate and encrypts nothing.
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
