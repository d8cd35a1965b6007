package settings

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/leased-project/leased/cmd/leased/internal/redisaccess"
	"github.com/leased-project/leased/lease"
)

// Settings are the configuration of a server.
type Settings struct {
	ID, Data                  string
	Listen, Advertise         string
	RaftListen, RaftAdvertise string
	TLSCert, TLSKey, TLSCA    string
	TLSClients                bool
	Users, SecretFile         string
	BootstrapExpect           int
	Join                      []string
	Heartbeat                 time.Duration
	LogLevel                  slog.Level
	LogFormat                 string
	// Redis is the nodes that the service begins with; the log has those of
	// today. RedisNodes is how they are reached. Single nodes have settings of their
	// own in the file only.
	Redis          []string
	RedisNamespace string
	RedisMaxTTL    time.Duration
	RedisNodes     redisaccess.Nodes
	// Policies are set when the server starts and when it reloads. They are
	// in the file only.
	Policies []lease.Policy

	texts   map[string]string // as given, by key
	sources map[string]string
}

// Flags adds a flag for every key.
func Flags(flags *pflag.FlagSet) {
	for _, k := range keys {
		if k.flag {
			flags.Bool(k.name, k.byDefault == "true", k.usage)
		} else {
			flags.String(k.name, k.byDefault, k.usage)
		}
	}
}

// Variable is the environment variable of a key.
func Variable(key string) string {
	return "LEASED_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
}

// Load puts flags, environment and file together and checks the result. file is
// the path of a YAML file, or empty.
func Load(flags *pflag.FlagSet, environ func(string) (string, bool), file string) (*Settings, error) {
	s := &Settings{texts: map[string]string{}, sources: map[string]string{}}
	for _, k := range keys {
		s.give(k.name, k.byDefault, "default")
	}
	if file != "" {
		if err := s.readFile(file); err != nil {
			return nil, err
		}
	}
	for _, k := range keys {
		if value, ok := environ(Variable(k.name)); ok {
			s.give(k.name, value, Variable(k.name))
		}
		if f := flags.Lookup(k.name); f != nil && f.Changed {
			s.give(k.name, f.Value.String(), "--"+k.name)
		}
	}
	for _, k := range keys {
		if rule := k.set(s, s.texts[k.name]); rule != "" {
			return nil, s.broken(k.name, rule)
		}
	}
	s.RedisNodes.Password, _ = environ(redisaccess.PasswordVariable)
	return s, s.validate()
}

func (s *Settings) give(key, value, source string) { s.texts[key], s.sources[key] = value, source }

func (s *Settings) broken(key, rule string) error {
	value := s.texts[key]
	if value == "" {
		value = "empty"
	}
	return &Error{Key: key, Value: value, Source: s.sources[key], Rule: rule}
}

// Print is the whole configuration as a YAML file, with the source of each
// value beside it.
func (s *Settings) Print() string {
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "%s: %s # %s\n", k.name, k.yaml(s.texts[k.name]), s.sources[k.name])
	}
	b.WriteString(printRedisNodes(&s.RedisNodes))
	b.WriteString(printPolicies(s.Policies))
	return b.String()
}
