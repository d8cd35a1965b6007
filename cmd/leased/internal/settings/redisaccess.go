package settings

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// PasswordVariable is the environment variable with the password of the Redis
	// nodes. It is not a flag because other users of the machine can see flags.
	PasswordVariable = "LEASED_REDIS_PASSWORD"
	// lookupTimeout bounds the lookup of a host at the start.
	lookupTimeout = 2 * time.Second
	// dialTimeout bounds one connection attempt, as in go-redis.
	dialTimeout = 5 * time.Second
)

// ErrRedis reports that the settings of a Redis node break a rule.
var ErrRedis = errors.New("invalid settings for Redis")

// RedisAccess has the options of a connection to a Redis node. The zero value means no TLS and no
// password.
type RedisAccess struct {
	// User is the ACL user; empty means the default user of Redis.
	User string
	// PasswordFile is a file with the password. Password is the password from the
	// environment. At most one of them is set.
	PasswordFile, Password string
	// TLS enables TLS. CA, Cert and Key are PEM files: the CA of the node's
	// certificate (empty: the CAs of the system) and the client certificate.
	TLS           bool
	CA, Cert, Key string
	// Insecure allows sending the password unencrypted to another host.
	Insecure bool
}

// redisFields are the options that redis-nodes may contain for a node, in the order in
// which they are applied.
var redisFields = []string{"user", "password-file", "tls", "tls-ca", "tls-cert", "tls-key"}

// set sets a field by its name in redis-nodes.
func (a *RedisAccess) set(field, value string) (rule string) {
	if !slices.Contains(redisFields, field) {
		return "is not an option of a node; the options are " + strings.Join(redisFields, ", ")
	}
	for _, k := range a.keys() {
		if k.name == "redis-"+field {
			rule = k.set(value)
		}
	}
	switch {
	case field == "password-file":
		a.Password = ""
	case field == "tls" && !a.TLS:
		a.CA, a.Cert, a.Key = "", "", ""
	}
	return rule
}

// broken returns the first setting that breaks a rule, and the rule. Both are empty
// if there is none. prefix is the prefix of the setting names, such as "redis-".
func (a *RedisAccess) broken(prefix string) (setting, rule string) {
	withoutTLS := "needs " + prefix + "tls (false) to be true"
	switch {
	case a.PasswordFile != "" && a.Password != "":
		return prefix + "password-file", "and " + PasswordVariable + " cannot be combined; remove one"
	case a.User != "" && a.PasswordFile == "" && a.Password == "":
		return prefix + "user", "must be given together with " + prefix + "password-file or " + PasswordVariable
	case a.Cert == "" && a.Key != "":
		return prefix + "tls-key", "must be given together with " + prefix + "tls-cert"
	case a.Cert != "" && a.Key == "":
		return prefix + "tls-cert", "must be given together with " + prefix + "tls-key"
	case !a.TLS && a.CA != "":
		return prefix + "tls-ca", withoutTLS
	case !a.TLS && a.Cert != "":
		return prefix + "tls-cert", withoutTLS
	}
	return "", ""
}

// Options returns the go-redis options for a node. It reads the files.
func (a *RedisAccess) Options(address string) (*redis.Options, error) {
	if setting, rule := a.broken("redis-"); rule != "" {
		return nil, fmt.Errorf("%w: %s %s", ErrRedis, setting, rule)
	}
	password, err := a.secret()
	if err != nil {
		return nil, err
	}
	options := &redis.Options{Addr: address, Username: a.User, Password: password}
	switch {
	case a.TLS:
		options.TLSConfig, err = a.tls(address)
	case password != "" && !a.Insecure:
		options.Dialer = dialLoopback
		err = checkClear(address)
	}
	return options, err
}

// secret returns the password, read from its file if there is one.
func (a *RedisAccess) secret() (string, error) {
	if a.PasswordFile == "" {
		return a.Password, nil
	}
	text, err := os.ReadFile(a.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("%w: read redis-password-file: %w", ErrRedis, err)
	}
	password := strings.TrimSpace(string(text))
	if password == "" {
		return "", fmt.Errorf("%w: redis-password-file (%s) is empty; it must contain the password", ErrRedis, a.PasswordFile)
	}
	return password, nil
}

func (a *RedisAccess) tls(address string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%w: Redis node %q must be HOST:PORT", ErrRedis, address)
	}
	config, err := TLS(a.CA, a.Cert, a.Key, func(setting, value string) string {
		return fmt.Sprintf("redis-%s (%s)", setting, value)
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRedis, err)
	}
	config.ServerName = host
	return config, nil
}

// TLS returns the configuration of connections with the given files: the CA of the other side, and the own
// certificate. name describes the value of a setting in an error.
func TLS(ca, cert, key string, name func(setting, value string) string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name("tls-ca", ca), err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s contains no PEM certificate", name("tls-ca", ca))
		}
	}
	if cert != "" {
		own, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("read %s and %s: %w", name("tls-cert", cert), name("tls-key", key), err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// checkClear rejects an address if a password would be sent to it over the network
// unencrypted. A name that does not resolve yet is checked when it is dialed.
func checkClear(address string) error {
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
			return "", fmt.Errorf("%w: the password would be sent unencrypted to Redis node %s on another host; "+
				"enable redis-tls, or allow it with redis-insecure", ErrRedis, address)
		}
	}
	return net.JoinHostPort(ips[0].String(), port), nil
}
