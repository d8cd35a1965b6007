package settings

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leased-project/leased/raftstore"
)

// key is one setting.
type key struct {
	name, byDefault, usage string
	flag                   bool // true or false
	// set parses a value into s. It returns the rule that the value breaks, or
	// nothing.
	set func(s *Settings, value string) (rule string)
	// list: several values, separated by commas.
	list bool
}

// yaml is the value as YAML.
func (k key) yaml(value string) string {
	switch {
	case k.list && value == "":
		return "[]"
	case k.list:
		var quoted []string
		for _, part := range split(value) {
			quoted = append(quoted, strconv.Quote(part))
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case k.flag, k.name == "bootstrap-expect":
		return value
	}
	return strconv.Quote(value)
}

var keys = slices.Concat(memberKeys, redisKeys, logKeys)

var memberKeys = []key{
	text("id", "", "name of this member, for ever (default: the host's name)", func(s *Settings) *string { return &s.ID }),
	text("data", "", "folder of this member's log and snapshots", func(s *Settings) *string { return &s.Data }),
	text("listen", "127.0.0.1:7420", "address of the API", func(s *Settings) *string { return &s.Listen }),
	text("advertise", "", "address of the API for clients and members (default: listen)", func(s *Settings) *string { return &s.Advertise }),
	text("raft-listen", "127.0.0.1:7421", "address for the other members", func(s *Settings) *string { return &s.RaftListen }),
	text("raft-advertise", "", "address that the other members reach (default: raft-listen)", func(s *Settings) *string { return &s.RaftAdvertise }),
	text("tls-cert", "", "certificate of this member (PEM file), for API and members", func(s *Settings) *string { return &s.TLSCert }),
	text("tls-key", "", "key of the certificate (PEM file)", func(s *Settings) *string { return &s.TLSKey }),
	text("tls-ca", "", "authority that signed the members' certificates (PEM file)", func(s *Settings) *string { return &s.TLSCA }),
	yesNo("tls-clients", "ask the clients of the API for a certificate of tls-ca too", func(s *Settings) *bool { return &s.TLSClients }),
	text("users", "", "file with those who may call the API, see leased user (default: whoever reaches it)", func(s *Settings) *string { return &s.Users }),
	text("secret-file", "", "file with the secret that this member shows to the others", func(s *Settings) *string { return &s.SecretFile }),
	{name: "bootstrap-expect", byDefault: "0", usage: "begin a new cluster once so many members are there; all of them are in join",
		set: func(s *Settings, v string) (rule string) { s.BootstrapExpect, rule = number(v, 0, 9); return }},
	list("join", "", "APIs of the members of the cluster, as host:port, separated by commas", func(s *Settings) *[]string { return &s.Join }),
	length("heartbeat-timeout", raftstore.DefaultHeartbeatTimeout, 5*time.Millisecond, "how long a follower waits for a sign of the leader",
		func(s *Settings) *time.Duration { return &s.Heartbeat }),
}

var logKeys = []key{
	{name: "log-level", byDefault: "info", usage: "debug, info, warn or error",
		set: func(s *Settings, v string) string {
			if s.LogLevel.UnmarshalText([]byte(v)) != nil {
				return "must be debug, info, warn or error"
			}
			return ""
		}},
	{name: "log-format", byDefault: "text", usage: "text or json",
		set: func(s *Settings, v string) string {
			s.LogFormat = v
			if v != "text" && v != "json" {
				return "must be text or json"
			}
			return ""
		}},
}

func text(name, byDefault, usage string, field func(*Settings) *string) key {
	return key{name: name, byDefault: byDefault, usage: usage, set: func(s *Settings, v string) string {
		*field(s) = v
		return ""
	}}
}

func list(name, byDefault, usage string, field func(*Settings) *[]string) key {
	return key{name: name, byDefault: byDefault, usage: usage, list: true, set: func(s *Settings, v string) string {
		*field(s) = split(v)
		return ""
	}}
}

func length(name string, byDefault, least time.Duration, usage string, field func(*Settings) *time.Duration) key {
	return key{name: name, byDefault: byDefault.String(), usage: usage, set: func(s *Settings, v string) string {
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

func yesNo(name, usage string, field func(*Settings) *bool) key {
	return key{name: name, byDefault: "false", flag: true, usage: usage, set: func(s *Settings, v string) string {
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

// split is the parts of a list, without the empty ones.
func split(v string) []string {
	var parts []string
	for part := range strings.SplitSeq(v, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}
