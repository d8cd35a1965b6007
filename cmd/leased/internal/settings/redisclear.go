package settings

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	// lookupTimeout bounds the lookup of a host at the start.
	lookupTimeout = 2 * time.Second
	// dialTimeout bounds one connection attempt, as in go-redis.
	dialTimeout = 5 * time.Second
)

// CheckClear rejects an address to which a password would be sent unencrypted over
// the network. A name that cannot be resolved now is checked when it is dialed.
func CheckClear(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	_, err := loopbackOf(ctx, address)
	if errors.As(err, new(*net.DNSError)) {
		return nil
	}
	return err
}

// dialLoopback connects to a loopback address only. It resolves the name again: an
// earlier result may be out of date.
func dialLoopback(ctx context.Context, network, address string) (net.Conn, error) {
	local, err := loopbackOf(ctx, address)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 5 * time.Minute}
	return dialer.DialContext(ctx, network, local)
}

// loopbackOf resolves a loopback address. Any other address is an error.
func loopbackOf(ctx context.Context, address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("%w: Redis node %q must be HOST:PORT", ErrRedis, address)
	}
	ips := []net.IP{net.ParseIP(host)}
	if ips[0] == nil {
		if ips, err = net.DefaultResolver.LookupIP(ctx, "ip", host); err != nil {
			return "", err
		}
	}
	for _, ip := range ips {
		if !ip.IsLoopback() {
			return "", &ClearError{Address: address}
		}
	}
	return net.JoinHostPort(ips[0].String(), port), nil
}

// ClearError reports that a password would be sent unencrypted to another host. It
// matches ErrRedis.
type ClearError struct {
	// Address is the address of the Redis node.
	Address string
}

// Error names the node and the two settings that allow the connection.
func (e *ClearError) Error() string {
	return fmt.Sprintf("the password would be sent unencrypted to Redis node %s on another host; "+
		"enable redis-tls, or allow it with redis-insecure", e.Address)
}

// Is makes errors.Is match ErrRedis.
func (e *ClearError) Is(target error) bool { return target == ErrRedis }
