package settings

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/logstore"
)

// key is one setting.
type key struct {
	name, fallback, usage string
	flag                  bool // true or false
	// set parses a value into s. It returns the rule that the value breaks, or "".
	set  func(s *Settings, value string) (rule string)
	list bool // several values, separated by commas
	// number is true for a value that is a number.
	number bool
}

// yaml formats a value as YAML.
func (k key) yaml(value string) string {
	switch {
	case k.list && value == "":
		return "[]"
	case k.list:
		var quoted []string
		for _, part := range Split(value) {
			quoted = append(quoted, strconv.Quote(part))
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case k.flag, k.number:
		return value
	}
	return strconv.Quote(value)
}

var keys = slices.Concat(memberKeys, redisKeys, limitKeys, logKeys)

var memberKeys = []key{
	text("id", "", "permanent name of this member (default: the host name)", func(s *Settings) *string { return &s.ID }),
	text("data", "", "data folder of this member (required)", func(s *Settings) *string { return &s.Data }),
	text("listen", "127.0.0.1:7420", "listen address of the API", func(s *Settings) *string { return &s.Listen }),
	text("advertise", "", "API address that clients and members use (default: listen)", func(s *Settings) *string { return &s.Advertise }),
	text("raft-listen", "127.0.0.1:7421", "listen address of Raft", func(s *Settings) *string { return &s.RaftListen }),
	text("raft-advertise", "", "Raft address that the other members use (default: raft-listen)", func(s *Settings) *string { return &s.RaftAdvertise }),
	text("probe-listen", "", "listen address that serves only /livez, /readyz and /metrics, without TLS and users (default: none)", func(s *Settings) *string { return &s.ProbeListen }),
	text("tls-cert", "", "PEM file with the certificate of this member, which names it (leased certs), for the API and Raft", func(s *Settings) *string { return &s.TLSCert }),
	text("tls-key", "", "PEM file with the key of the certificate", func(s *Settings) *string { return &s.TLSKey }),
	text("tls-ca", "", "PEM file with the CA of the members' certificates", func(s *Settings) *string { return &s.TLSCA }),
	boolean("tls-clients", "require a certificate signed by tls-ca from clients of the API", func(s *Settings) *bool { return &s.TLSClients }),
	text("users", "", "file with the users that may call the API, see leased user (default: everyone who can connect)", func(s *Settings) *string { return &s.Users }),
	text("secret-file", "", "file with the secret that this member presents to the others", func(s *Settings) *string { return &s.SecretFile }),
	text("signing-key-file", "", "PEM file with the key that signs tokens, see leased keys (default: tokens cannot be signed)", func(s *Settings) *string { return &s.SigningKeyFile }),
	duration("signature-ttl", server.DefaultSignatureTTL, time.Minute, "how long gates accept a signed token",
		func(s *Settings) *time.Duration { return &s.SignatureTTL }),
	{name: "bootstrap-expect", fallback: "0", number: true, usage: "number of members that form a new cluster; join lists all of them",
		set: func(s *Settings, v string) (rule string) { s.BootstrapExpect, rule = number(v, 0, 9); return }},
	list("join", "", "API addresses of the members, HOST:PORT, separated by commas", func(s *Settings) *[]string { return &s.Join }),
	duration("heartbeat-timeout", raftstore.DefaultHeartbeatTimeout, 5*time.Millisecond, "time without a heartbeat after which a follower starts an election",
		func(s *Settings) *time.Duration { return &s.Heartbeat }),
	{name: "log-store", fallback: string(raftstore.DefaultLogStore), usage: "store of the Raft log: wal or bolt; fixed for a data folder",
		set: func(s *Settings, v string) string {
			var err error
			if s.LogStore, err = logstore.ParseKind(v); err != nil {
				return "must be wal or bolt"
			}
			return ""
		}},
}

var logKeys = []key{
	{name: "log-level", fallback: "info", usage: "log level: debug, info, warn or error",
		set: func(s *Settings, v string) string {
			if s.LogLevel.UnmarshalText([]byte(v)) != nil {
				return "must be debug, info, warn or error"
			}
			return ""
		}},
	{name: "log-format", fallback: "text", usage: "log format: text or json",
		set: func(s *Settings, v string) string {
			s.LogFormat = v
			if v != "text" && v != "json" {
				return "must be text or json"
			}
			return ""
		}},
	text("trace-endpoint", "", "URL of an OpenTelemetry collector (OTLP over HTTP) that receives traces, such as http://127.0.0.1:4318 (default: none)",
		func(s *Settings) *string { return &s.TraceEndpoint }),
	{name: "trace-sample", fallback: "1", number: true, usage: "fraction of the calls without a traceparent that are traced, from 0 to 1",
		set: func(s *Settings, v string) string {
			var err error
			if s.TraceSample, err = strconv.ParseFloat(v, 64); err != nil || !(s.TraceSample >= 0 && s.TraceSample <= 1) {
				return "must be a number from 0 to 1"
			}
			return ""
		}},
	text("pprof-listen", "", "loopback address that serves Go profiles, such as 127.0.0.1:6060 (default: none)", func(s *Settings) *string { return &s.PprofListen }),
	text("audit-file", "", "file for the audit log, as lines of JSON; - is the standard output (default: none)", func(s *Settings) *string { return &s.AuditFile }),
}

func text(name, fallback, usage string, field func(*Settings) *string) key {
	return key{name: name, fallback: fallback, usage: usage, set: func(s *Settings, v string) string {
		*field(s) = v
		return ""
	}}
}

func list(name, fallback, usage string, field func(*Settings) *[]string) key {
	return key{name: name, fallback: fallback, usage: usage, list: true, set: func(s *Settings, v string) string {
		*field(s) = Split(v)
		return ""
	}}
}

func duration(name string, fallback, least time.Duration, usage string, field func(*Settings) *time.Duration) key {
	return key{name: name, fallback: fallback.String(), usage: usage, set: func(s *Settings, v string) string {
		d, err := time.ParseDuration(v)
		if err != nil {
			return "must be a duration such as 500ms or 10s"
		}
		if d < least {
			return fmt.Sprintf("must be at least %v", least)
		}
		*field(s) = d
		return ""
	}}
}

func boolean(name, usage string, field func(*Settings) *bool) key {
	return key{name: name, fallback: "false", flag: true, usage: usage, set: func(s *Settings, v string) string {
		on, err := strconv.ParseBool(v)
		if err != nil {
			return "must be true or false"
		}
		*field(s) = on
		return ""
	}}
}

func number(v string, least, most int) (int, string) {
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > most {
		return 0, fmt.Sprintf("must be a number from %d to %d", least, most)
	}
	return n, ""
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
