package redisaccess

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// PasswordVariable is the environment variable with the password of the Redis
// nodes. There is no flag for it: other users of the machine see flags.
const PasswordVariable = "LEASED_REDIS_PASSWORD"

// ErrInvalid: the settings for a Redis node break a rule, which the error names.
var ErrInvalid = errors.New("invalid settings for Redis")

// Access is how a Redis node is reached. The zero value is an open connection
// without a password.
type Access struct {
	// User is the ACL user; empty is Redis' default user.
	User string
	// PasswordFile is a file with the password. Password is the password itself,
	// of the environment. At most one of them is set.
	PasswordFile, Password string
	// TLS encrypts the connection. CA, Cert and Key are PEM files: the authority
	// that signed the node's certificate (empty: those of the system), and the own
	// certificate where the node asks for one.
	TLS           bool
	CA, Cert, Key string
	// Insecure allows a password in clear to another host.
	Insecure bool
}

// set sets a field by its name in redis-nodes.
func (a *Access) set(field, value string) (rule string) {
	switch field {
	case "user":
		a.User = value
	case "password-file":
		a.PasswordFile, a.Password = value, ""
	case "tls":
		on, err := strconv.ParseBool(value)
		if err != nil {
			return "must be true or false"
		}
		a.TLS = on
		if !on {
			a.CA, a.Cert, a.Key = "", "", ""
		}
	case "tls-ca":
		a.CA = value
	case "tls-cert":
		a.Cert = value
	case "tls-key":
		a.Key = value
	default:
		return "is no setting of a node; there are " + strings.Join(Fields, ", ")
	}
	return ""
}

// Fields are the settings that redis-nodes may have for a node, in the order in
// which they are applied.
var Fields = []string{"user", "password-file", "tls", "tls-ca", "tls-cert", "tls-key"}

// Broken returns the first rule that the settings break together, and the setting
// that breaks it; both are empty if there is none. prefix is what the names of the
// settings begin with, as "redis-".
func (a *Access) Broken(prefix string) (setting, rule string) {
	given := func(name, value string) string { return prefix + name + " (" + value + ")" }
	switch {
	case a.PasswordFile != "" && a.Password != "":
		return prefix + "password-file", "and " + PasswordVariable + " exclude each other; remove one"
	case a.User != "" && a.PasswordFile == "" && a.Password == "":
		return prefix + "user", "must be given together with " + prefix + "password-file or " + PasswordVariable
	case (a.Cert == "") != (a.Key == ""):
		if a.Cert == "" {
			return prefix + "tls-key", "must be given together with " + prefix + "tls-cert"
		}
		return prefix + "tls-cert", "must be given together with " + prefix + "tls-key"
	case !a.TLS && a.CA != "":
		return prefix + "tls-ca", "needs " + given("tls", "false") + " to be true"
	case !a.TLS && a.Cert != "":
		return prefix + "tls-cert", "needs " + given("tls", "false") + " to be true"
	}
	return "", ""
}

// secret returns the password, read from its file if there is one.
func (a *Access) secret() (string, error) {
	if a.PasswordFile == "" {
		return a.Password, nil
	}
	text, err := os.ReadFile(a.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("%w: read redis-password-file: %w", ErrInvalid, err)
	}
	password := strings.TrimSpace(string(text))
	if password == "" {
		return "", fmt.Errorf("%w: redis-password-file (%s) is empty; it must hold the password", ErrInvalid, a.PasswordFile)
	}
	return password, nil
}

// CheckFiles reads the files, and reports the first that is bad.
func (a *Access) CheckFiles() error {
	if _, err := a.secret(); err != nil || !a.TLS {
		return err
	}
	_, err := a.tls("127.0.0.1:6379") // the files do not depend on the node
	return err
}

// Options returns the options of connections to a node. It reads the files.
func (a *Access) Options(address string) (*redis.Options, error) {
	if setting, rule := a.Broken("redis-"); rule != "" {
		return nil, fmt.Errorf("%w: %s %s", ErrInvalid, setting, rule)
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
		err = CheckClear(address)
	}
	return options, err
}

func (a *Access) tls(address string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%w: Redis node %q must be host:port", ErrInvalid, address)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if a.CA != "" {
		text, err := os.ReadFile(a.CA)
		if err != nil {
			return nil, fmt.Errorf("%w: read redis-tls-ca: %w", ErrInvalid, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%w: redis-tls-ca (%s) must have a certificate in PEM form", ErrInvalid, a.CA)
		}
	}
	if a.Cert != "" {
		own, err := tls.LoadX509KeyPair(a.Cert, a.Key)
		if err != nil {
			return nil, fmt.Errorf("%w: read redis-tls-cert (%s) and redis-tls-key (%s): %w", ErrInvalid, a.Cert, a.Key, err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}
