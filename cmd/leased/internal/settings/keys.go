package settings

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/logstore"
	"github.com/leased-project/leased/redlockadapter"
)

// key is one setting.
type key struct {
	name, fallback, usage string
	kind                  kind
	// set parses a value into the field of the setting. It returns the rule that the value breaks, or "".
	set func(value string) (rule string)
}

// kind is how a value is written in a file.
type kind int

const (
	quoted  kind = iota
	literal      // a number
	flag         // true or false
	listed       // several values, separated by commas
)

// yaml formats a value as YAML.
func (k key) yaml(value string) string {
	switch k.kind {
	case literal, flag:
		return value
	case listed:
		var all []string
		for _, part := range Split(value) {
			all = append(all, strconv.Quote(part))
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	return strconv.Quote(value)
}

// keys returns all settings, which set the fields of s.
func (s *Settings) keys() []key {
	return slices.Concat(s.memberKeys(), s.redisKeys(), s.limitKeys(), s.logKeys())
}

func (s *Settings) memberKeys() []key {
	return []key{
		text(&s.ID, "id", "", "permanent name of this member (default: the host name)"),
		text(&s.Data, "data", "", "data folder of this member (required)"),
		text(&s.Listen, "listen", "127.0.0.1:7420", "listen address of the API"),
		text(&s.Advertise, "advertise", "", "API address that clients and members use (default: listen)"),
		text(&s.RaftListen, "raft-listen", "127.0.0.1:7421", "listen address of Raft"),
		text(&s.RaftAdvertise, "raft-advertise", "", "Raft address that the other members use (default: raft-listen)"),
		text(&s.ProbeListen, "probe-listen", "",
			"listen address that serves only /livez, /readyz and /metrics, without TLS and users (default: none)"),
		text(&s.TLSCert, "tls-cert", "",
			"PEM file with the certificate of this member, which names it (leased certs), for the API and Raft"),
		text(&s.TLSKey, "tls-key", "", "PEM file with the key of the certificate"),
		text(&s.TLSCA, "tls-ca", "", "PEM file with the CA of the members' certificates"),
		boolean(&s.TLSClients, "tls-clients", "require a certificate signed by tls-ca from clients of the API"),
		text(&s.Users, "users", "",
			"file with the users that may call the API, see leased user (default: everyone who can connect)"),
		text(&s.SecretFile, "secret-file", "", "file with the secret that this member presents to the others"),
		text(&s.SigningKeyFile, "signing-key-file", "",
			"PEM file with the key that signs tokens, see leased keys (default: tokens cannot be signed)"),
		duration(&s.SignatureTTL, "signature-ttl", server.DefaultSignatureTTL, time.Minute,
			"how long gates accept a signed token"),
		number(&s.BootstrapExpect, "bootstrap-expect", 0, 0, 9,
			"number of members that form a new cluster; join lists all of them"),
		list(&s.Join, "join", "API addresses of the members, HOST:PORT, separated by commas"),
		duration(&s.Heartbeat, "heartbeat-timeout", raftstore.DefaultHeartbeatTimeout, 5*time.Millisecond,
			"time without a heartbeat after which a follower starts an election"),
		duration(&s.DiskTimeout, "disk-timeout", raftstore.DefaultStoreDeadline, 10*time.Millisecond,
			"time after which a member whose disk does not answer stops, so that another can lead"),
		parsed(&s.LogStore, "log-store", string(raftstore.DefaultLogStore), quoted,
			"store of the Raft log: wal or bolt; fixed for a data folder", "must be wal or bolt", logstore.ParseKind),
	}
}

func (s *Settings) redisKeys() []key {
	return append([]key{
		list(&s.Redis, "redis", "first Redis nodes of efficiency mode: an odd number of masters, HOST:PORT, "+
			"separated by commas; to change them later, use leased redis fleet set"),
		text(&s.RedisNamespace, "redis-namespace", redlockadapter.DefaultNamespace, "prefix of the keys in Redis"),
		duration(&s.RedisMaxTTL, "redis-max-ttl", redlockadapter.DefaultMaxTTL, lease.MinTTL,
			"longest TTL in efficiency mode"),
		duration(&s.RedisTimeout, "redis-timeout", redlockadapter.DefaultNodeTimeout, time.Millisecond,
			"time after which a Redis node that does not answer counts as unreachable"),
	}, s.RedisNodes.keys()...)
}

// keys returns the settings of connections to Redis nodes. Members and other programs have the same ones.
func (a *RedisAccess) keys() []key {
	return []key{
		text(&a.User, "redis-user", "", "ACL user on the Redis nodes (default: the default user of Redis)"),
		text(&a.PasswordFile, "redis-password-file", "",
			"file with the password of the Redis nodes; or give the password in "+PasswordVariable),
		boolean(&a.TLS, "redis-tls", "encrypt the connections to the Redis nodes"),
		text(&a.CA, "redis-tls-ca", "",
			"PEM file with the CA of the Redis nodes' certificates (default: the CAs of the system)"),
		text(&a.Cert, "redis-tls-cert", "",
			"PEM file with the certificate to present to the Redis nodes, if they require one"),
		text(&a.Key, "redis-tls-key", "", "PEM file with the key of redis-tls-cert"),
		boolean(&a.Insecure, "redis-insecure", "allow sending the password unencrypted to another host"),
	}
}

func (s *Settings) limitKeys() (all []key) {
	l := &s.Limits
	for _, f := range limits.Fields {
		all = append(all, number(f.Of(l), f.Name, f.Default, f.Least, f.Most, f.Usage))
	}
	return append(all,
		duration(&l.TTLMin, limits.TTLMinName, lease.MinTTL, lease.MinTTL, "shortest TTL of a session or lease"),
		duration(&l.TTLMax, limits.TTLMaxName, lease.MaxTTL, lease.MinTTL, "longest TTL of a session or lease"),
		duration(&l.SendTimeout, limits.SendTimeoutName, limits.DefaultSendTimeout, time.Second,
			"time for which a client may leave a message of a stream unread"),
		duration(&l.BodyTimeout, limits.BodyTimeoutName, limits.DefaultBodyTimeout, time.Second,
			"time until the body of an HTTP call must have arrived"),
		duration(&l.IdleTimeout, limits.IdleTimeoutName, limits.DefaultIdleTimeout, time.Second,
			"time after which a connection without calls is closed"))
}

func (s *Settings) logKeys() []key {
	return []key{
		parsed(&s.LogLevel, "log-level", "info", quoted, "log level: debug, info, warn or error",
			"must be debug, info, warn or error", func(v string) (level slog.Level, err error) {
				return level, level.UnmarshalText([]byte(v))
			}),
		parsed(&s.LogFormat, "log-format", "text", quoted, "log format: text or json", "must be text or json",
			func(v string) (string, error) {
				if v != "text" && v != "json" {
					return "", ErrInvalid
				}
				return v, nil
			}),
		text(&s.TraceEndpoint, "trace-endpoint", "", "URL of an OpenTelemetry collector (OTLP over HTTP) that receives "+
			"traces, such as http://127.0.0.1:4318 (default: none)"),
		parsed(&s.TraceSample, "trace-sample", "1", literal,
			"fraction of the calls without a traceparent that are traced, from 0 to 1", "must be a number from 0 to 1",
			func(v string) (float64, error) {
				sample, err := strconv.ParseFloat(v, 64)
				if err == nil && !(sample >= 0 && sample <= 1) {
					err = ErrInvalid
				}
				return sample, err
			}),
		text(&s.PprofListen, "pprof-listen", "",
			"loopback address that serves Go profiles, such as 127.0.0.1:6060 (default: none)"),
		text(&s.AuditFile, "audit-file", "",
			"file for the audit log, as lines of JSON; - is the standard output (default: none)"),
	}
}

// parsed returns a setting whose values break a rule if parse returns an error.
func parsed[T any](to *T, name, fallback string, kind kind, usage, rule string, parse func(string) (T, error)) key {
	return key{name: name, fallback: fallback, usage: usage, kind: kind, set: func(v string) string {
		value, err := parse(v)
		if err != nil {
			return rule
		}
		*to = value
		return ""
	}}
}

func text(to *string, name, fallback, usage string) key {
	return parsed(to, name, fallback, quoted, usage, "", func(v string) (string, error) { return v, nil })
}

func list(to *[]string, name, usage string) key {
	return parsed(to, name, "", listed, usage, "", func(v string) ([]string, error) { return Split(v), nil })
}

func boolean(to *bool, name, usage string) key {
	return parsed(to, name, "false", flag, usage, "must be true or false", strconv.ParseBool)
}

func number(to *int, name string, fallback, least, most int, usage string) key {
	rule := fmt.Sprintf("must be a number from %d to %d", least, most)
	return parsed(to, name, strconv.Itoa(fallback), literal, usage, rule, func(v string) (int, error) {
		n, err := strconv.Atoi(v)
		if err == nil && (n < least || n > most) {
			err = ErrInvalid
		}
		return n, err
	})
}

func duration(to *time.Duration, name string, fallback, least time.Duration, usage string) key {
	return key{name: name, fallback: fallback.String(), usage: usage, set: func(v string) string {
		d, err := time.ParseDuration(v)
		if err != nil {
			return "must be a duration such as 500ms or 10s"
		}
		if d < least {
			return fmt.Sprintf("must be at least %v", least)
		}
		*to = d
		return ""
	}}
}

// Split returns the parts of a list that commas separate, without empty ones.
func Split(v string) []string {
	var parts []string
	for part := range strings.SplitSeq(v, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}
