package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/lease/engine"
)

const (
	// dialTime bounds one connection attempt, as in go-redis.
	dialTime = 5 * time.Second
	// probeTime bounds the look whether nodes can be connected to.
	probeTime = time.Second
)

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

// probe fails if a quorum of the nodes cannot be connected to. go-redis writes a line
// to standard error for each connection that fails; where the network has no way to
// the nodes there should be one line in all, ours.
func (c *config) probe(ctx context.Context, fleet engine.Fleet) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	errs := make([]error, len(fleet.Addresses))
	var wg sync.WaitGroup
	for i, address := range fleet.Addresses {
		wg.Go(func() {
			dial := c.options(address).Dialer
			if dial == nil {
				dial = (&net.Dialer{}).DialContext
			}
			conn, err := dial(ctx, "tcp", address)
			if err == nil {
				err = conn.Close()
			}
			errs[i] = err
		})
	}
	wg.Wait()
	reached := 0
	for _, err := range errs {
		if err == nil {
			reached++
		}
	}
	if needed := len(errs)/2 + 1; reached < needed {
		return fmt.Errorf("%w: %d of %d Redis nodes can be connected to, %d are needed: %w",
			engine.ErrUnavailable, reached, len(errs), needed, errors.Join(errs...))
	}
	return nil
}

// checkClear refuses a fleet to which passwords would go out in clear, as far as
// addresses show that.
func (c *config) checkClear(fleet engine.Fleet) error {
	if c.insecure || c.noRedis {
		return nil
	}
	for _, address := range fleet.Addresses {
		o := c.redis(address)
		if o == nil {
			return fmt.Errorf("%w: WithRedis gives no options for %s", engine.ErrInvalid, address)
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
		"set TLSConfig in the options of WithRedis, or allow it with WithRedisInsecure", engine.ErrInvalid, address)
}
