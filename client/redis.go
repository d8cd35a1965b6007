package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/lease/engine"
)

const (
	// dialTimeout bounds one try to connect. It is the default of go-redis.
	dialTimeout = 5 * time.Second
	// probeTimeout bounds the check that the nodes can be reached.
	probeTimeout = time.Second
)

// options returns the options of one Redis node. A password is not sent in clear text
// to another host.
func (c *config) options(address string) *redis.Options {
	o := *c.redis(address)
	o.Addr = address
	if c.insecure || o.TLSConfig != nil || !hasPassword(&o) {
		return &o
	}
	dial := o.Dialer
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 5 * time.Minute}).DialContext
	}
	// The host of a name is known only when it is dialed.
	o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if _, encrypted := conn.(*tls.Conn); encrypted || secret.CheckConn(conn) == nil {
			return conn, nil
		}
		_ = conn.Close()
		return nil, clearTextError(address)
	}
	return &o
}

func hasPassword(o *redis.Options) bool {
	return o.Password != "" || o.CredentialsProvider != nil || o.CredentialsProviderContext != nil ||
		o.StreamingCredentialsProvider != nil
}

// probe returns an error unless it can connect to a quorum of the nodes. go-redis writes a
// line to standard error for each connection that fails; if the network has no route to the
// nodes, probe reduces that to one line.
func (c *config) probe(ctx context.Context, fleet engine.Fleet) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	nodes := len(fleet.Addresses)
	errs := engine.Each(nodes, nodes, func(i int) error {
		address := fleet.Addresses[i]
		dial := c.options(address).Dialer
		if dial == nil {
			dial = (&net.Dialer{}).DialContext
		}
		conn, err := dial(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if reached, needed := nodes-len(errs), nodes/2+1; reached < needed {
		return fmt.Errorf("%w: %d of %d Redis nodes can be connected to, %d are needed: %w",
			engine.ErrUnavailable, reached, nodes, needed, errors.Join(errs...))
	}
	return nil
}

// checkOptions refuses a fleet if the program has no options for one of its nodes, or if its
// addresses show that passwords would be sent in clear text.
func (c *config) checkOptions(fleet engine.Fleet) error {
	if c.noRedis {
		return nil
	}
	for _, address := range fleet.Addresses {
		o := c.redis(address)
		if o == nil {
			return fmt.Errorf("%w: the function of WithRedis returned nil for %s", engine.ErrInvalid, address)
		}
		host, _, err := net.SplitHostPort(address)
		ip := net.ParseIP(host)
		if !c.insecure && err == nil && ip != nil && !ip.IsLoopback() && o.TLSConfig == nil && o.Dialer == nil &&
			hasPassword(o) {
			return clearTextError(address)
		}
	}
	return nil
}

func clearTextError(address string) error {
	return fmt.Errorf("%w: the password is not sent in clear text to Redis node %s on another host; "+
		"set TLSConfig in the options of WithRedis, or allow it with WithRedisInsecure", engine.ErrInvalid, address)
}
