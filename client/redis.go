package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/lease"
)

// dialTime bounds one connection attempt, as in go-redis.
const dialTime = 5 * time.Second

// options returns how one Redis node is reached.
func (c *config) options(address string) *redis.Options {
	o := *c.redis(address)
	o.Addr = address
	if c.insecure || o.TLSConfig != nil || !hasPassword(&o) {
		return &o
	}
	dial := o.Dialer
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTime, KeepAlive: 5 * time.Minute}).DialContext
	}
	// What a name stands for is known when the connection is made.
	o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if _, encrypted := conn.(*tls.Conn); encrypted || isLocal(conn.RemoteAddr()) {
			return conn, nil
		}
		_ = conn.Close()
		return nil, clearError(address)
	}
	return &o
}

func hasPassword(o *redis.Options) bool {
	return o.Password != "" || o.CredentialsProvider != nil || o.CredentialsProviderContext != nil || o.StreamingCredentialsProvider != nil
}

// checkClear refuses a fleet to which passwords would go out in clear, as far as
// addresses show that.
func (c *config) checkClear(fleet lease.Fleet) error {
	if c.insecure || c.noRedis {
		return nil
	}
	for _, address := range fleet.Addresses {
		o := c.redis(address)
		if o == nil {
			return fmt.Errorf("%w: WithRedis gives no options for %s", lease.ErrInvalid, address)
		}
		host, _, err := net.SplitHostPort(address)
		ip := net.ParseIP(host)
		if err == nil && ip != nil && !ip.IsLoopback() && o.TLSConfig == nil && o.Dialer == nil && hasPassword(o) {
			return clearError(address)
		}
	}
	return nil
}

func isLocal(address net.Addr) bool {
	switch a := address.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

func clearError(address string) error {
	return fmt.Errorf("%w: the password is not sent in clear to Redis node %s, which is another host; "+
		"set TLSConfig in the options of WithRedis, or allow it with WithRedisInsecure", lease.ErrInvalid, address)
}
