package server

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/fencing/signature"
	"github.com/leased-project/leased/internal/server/audit"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/server/tracing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// ErrConfig reports that a Config breaks a rule, which the error names.
var ErrConfig = errors.New("invalid server configuration")

// DefaultSignatureTTL is how long gates accept a signed token, and therefore how long a
// copied one can be used.
const DefaultSignatureTTL = time.Hour

// Config has the parts of a Server. A zero field has its default.
type Config struct {
	// Raft configures this member of the Raft cluster, except for Observer, Times and Hooks,
	// which New sets.
	Raft raftstore.Config
	// TimesFile is the file that keeps the times of grants for the next process. Default:
	// none.
	TimesFile string
	// Redis is the fleet of efficiency mode that a cluster without a fleet adopts. A
	// cluster that has a fleet keeps it. Default: none.
	Redis engine.Fleet
	// RedisOptions returns the connection options of a Redis node, such as
	// credentials and TLS. Default: the address alone.
	RedisOptions func(address string) *redis.Options
	// RedisTimeout bounds one request to one Redis node. Default:
	// redlockadapter.DefaultNodeTimeout.
	RedisTimeout time.Duration
	// Advertise is the API address that clients and other members use. Default: the
	// listener's address.
	Advertise string
	// TLS has the certificate of the API, and the certificates that clients need.
	// Default: no TLS.
	TLS *tls.Config
	// PeerTLS returns the TLS configuration for calls to other members, or nil for
	// none. Default: none.
	PeerTLS func() *tls.Config
	// Users are the accepted callers. Default: every call is accepted.
	Users *auth.Users
	// Secret returns the secret that this member authenticates with at other
	// members, or "" for none. Default: none.
	Secret func() string
	// Audit records who did what. Default: the ordinary log, at the level debug.
	Audit *audit.Log
	// Signer returns the key that signs tokens, or nil for none. Gates accept a
	// signature for SignatureTTL, DefaultSignatureTTL by default. Default: none.
	Signer       func() *signature.Signer
	SignatureTTL time.Duration
	// Limits bounds requests and users. Default: limits.Default.
	Limits limits.Limits
	// FilePolicies returns the policies of this member's configuration file, which
	// ListPolicies shows beside those in effect. Default: none.
	FilePolicies func() []engine.Policy
	// Metrics records what this member does, and is served at metrics.Path. Default: new ones.
	Metrics *metrics.Metrics
	// Certificates returns when the certificates of this member expire, by their use, for
	// Metrics. Default: none.
	Certificates func() map[string]time.Time
	// Tracer makes spans of the calls that change locks. Default: none.
	Tracer *tracing.Tracer
	// Version is the version of the program, for Status.
	Version string
	// Clock is engine.SystemClock by default, Logger is slog.Default.
	Clock  engine.Clock
	Logger *slog.Logger
}

// filled returns the Config with defaults, or an error if it breaks a rule.
func (c Config) filled() (Config, error) {
	if err := c.Redis.Validate(); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if c.RedisOptions == nil {
		c.RedisOptions = func(address string) *redis.Options { return &redis.Options{Addr: address} }
	}
	if c.PeerTLS == nil {
		c.PeerTLS = func() *tls.Config { return nil }
	}
	if c.FilePolicies == nil {
		c.FilePolicies = func() []engine.Policy { return nil }
	}
	if c.Secret == nil {
		c.Secret = func() string { return "" }
	}
	if c.Signer == nil {
		c.Signer = func() *signature.Signer { return nil }
	}
	if c.Metrics == nil {
		c.Metrics = metrics.New(c.Version, "")
	}
	c.SignatureTTL = cmp.Or(c.SignatureTTL, DefaultSignatureTTL)
	if c.Limits == (limits.Limits{}) {
		c.Limits = limits.Default()
	}
	if err := c.Limits.Validate(); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if c.Clock == nil {
		c.Clock = engine.SystemClock()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Audit == nil {
		var err error
		if c.Audit, err = audit.Open(audit.Config{Member: c.Raft.ID, Logger: c.Logger}); err != nil {
			return c, err
		}
	}
	return c, nil
}

// CheckAddress returns an error for an address that other machines can reach if
// there is no TLS: the API would be unencrypted and open to everyone.
func CheckAddress(address string, config *tls.Config) error {
	if config != nil {
		return nil
	}
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return fmt.Errorf("%w: address (%s): %w", ErrConfig, address, err)
	}
	if resolved.IP == nil || !resolved.IP.IsLoopback() {
		return fmt.Errorf("%w: address (%s) is not a loopback address, and there is no TLS: everyone who reaches the "+
			"port could take and break leases; "+
			"configure a certificate and a key, or listen on 127.0.0.1", ErrConfig, address)
	}
	return nil
}
