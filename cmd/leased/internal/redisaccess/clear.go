package redisaccess

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	// lookupTime bounds the look-up of a host at the start.
	lookupTime = 2 * time.Second
	// dialTime bounds one connection attempt, as in go-redis.
	dialTime = 5 * time.Second
)

// CheckClear refuses to send a password in clear to an address that is not known
// to be this machine. A name that cannot be resolved now is checked again when it
// is dialed.
func CheckClear(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	_, err := loopbackOf(ctx, address)
	var unknown *net.DNSError
	if errors.As(err, &unknown) {
		return nil
	}
	return err
}

// dialLoopback connects to an address of this machine, and to no other. What the
// name stood for before does not count.
func dialLoopback(ctx context.Context, network, address string) (net.Conn, error) {
	local, err := loopbackOf(ctx, address)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTime, KeepAlive: 5 * time.Minute}
	return dialer.DialContext(ctx, network, local)
}

// loopbackOf resolves an address of this machine. Any other address is an error.
func loopbackOf(ctx context.Context, address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("%w: Redis node %q must be host:port", ErrInvalid, address)
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

// ClearError says that a password would go out in clear to another host. It
// matches ErrInvalid.
type ClearError struct {
	// Address is that of the Redis node.
	Address string
}

// Error names the node and both settings that allow it.
func (e *ClearError) Error() string {
	return fmt.Sprintf("the password is not sent in clear to Redis node %s, which is another host; "+
		"encrypt the connection with redis-tls, or allow it with redis-insecure", e.Address)
}

// Is makes errors.Is match ErrInvalid.
func (e *ClearError) Is(target error) bool { return target == ErrInvalid }
