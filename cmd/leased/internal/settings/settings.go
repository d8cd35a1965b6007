package settings

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore/logstore"
)

// Settings is the configuration of a member.
type Settings struct {
	ID, Data                  string
	Listen, Advertise         string
	RaftListen, RaftAdvertise string
	ProbeListen               string
	TLSCert, TLSKey, TLSCA    string
	TLSClients                bool
	Users, SecretFile         string
	SigningKeyFile            string
	SignatureTTL              time.Duration
	BootstrapExpect           int
	Join                      []string
	Heartbeat, DiskTimeout    time.Duration
	LogLevel                  slog.Level
	LogFormat                 string
	AuditFile                 string
	TraceEndpoint             string
	TraceSample               float64
	PprofListen               string
	// LogStore is the kind of the Raft log store.
	LogStore logstore.Kind
	// Redis are the first nodes of the service; the log has the current ones.
	// RedisNodes says how to connect to them. Only the file can set options of
	// single nodes.
	Redis          []string
	RedisNamespace string
	RedisMaxTTL    time.Duration
	RedisTimeout   time.Duration
	RedisNodes     RedisNodes
	// Limits bounds requests and users.
	Limits limits.Limits
	// Policies are set in a new cluster. Only the file can contain them.
	Policies []lease.Policy

	texts   map[string]string // the given values, by key
	sources map[string]string
}

// defaultSource is the source of a value that nobody has given.
const defaultSource = "default"

// Flags adds a flag for every key.
func Flags(flags *pflag.FlagSet) {
	for _, k := range new(Settings).keys() {
		k.addTo(flags, k.usage)
	}
}

// RedisFlags adds the flags of a program that connects to Redis nodes and is no member.
func RedisFlags(flags *pflag.FlagSet) {
	for _, k := range new(RedisAccess).keys() {
		k.addTo(flags, k.usage+" ("+Variable(k.name)+")")
	}
}

func (k key) addTo(flags *pflag.FlagSet, usage string) {
	if k.kind == flag {
		flags.Bool(k.name, k.fallback == "true", usage)
	} else {
		flags.String(k.name, k.fallback, usage)
	}
}

// Variables returns the environment variables of all keys, and the one for the password of
// the Redis nodes.
func Variables() []string {
	names := []string{PasswordVariable}
	for _, k := range new(Settings).keys() {
		names = append(names, Variable(k.name))
	}
	return names
}

// Variable returns the environment variable of a key.
func Variable(key string) string {
	return "LEASED_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
}

// Load combines flags, environment and file, and checks the result. file is the
// path of a YAML file, or empty. If settings are invalid, the error names all of them,
// and only Print may use the Settings. Rules between settings are checked when
// each of them is valid.
func Load(flags *pflag.FlagSet, environ func(string) (string, bool), file string) (*Settings, error) {
	s := &Settings{texts: map[string]string{}, sources: map[string]string{}}
	var invalid error
	if file != "" {
		invalid = s.readFile(file)
	}
	invalid = errors.Join(invalid, s.load(s.keys(), flags, environ))
	s.RedisNodes.Password, _ = environ(PasswordVariable)
	if invalid == nil {
		invalid = s.validate()
	}
	return s, invalid
}

// load sets the fields of keys to the values of flags, of the environment, of the file that was read before, or to
// the defaults.
func (s *Settings) load(keys []key, flags *pflag.FlagSet, environ func(string) (string, bool)) (invalid error) {
	for _, k := range keys {
		if _, ok := s.texts[k.name]; !ok {
			s.give(k.name, k.fallback, defaultSource)
		}
		if value, ok := environ(Variable(k.name)); ok {
			s.give(k.name, value, Variable(k.name))
		}
		if f := flags.Lookup(k.name); f != nil && f.Changed {
			s.give(k.name, f.Value.String(), "--"+k.name)
		}
		if rule := k.set(s.texts[k.name]); rule != "" {
			invalid = errors.Join(invalid, s.broken(k.name, rule))
		}
	}
	return invalid
}

func (s *Settings) give(key, value, source string) { s.texts[key], s.sources[key] = value, source }

func (s *Settings) broken(key, rule string) error {
	return &Error{Key: key, Value: cmp.Or(s.texts[key], "empty"), Source: s.sources[key], Rule: rule}
}

// Print returns the whole configuration as a YAML file, with the source of each
// value in a comment. It does not show a secret that was given in a wrong place.
func (s *Settings) Print() string {
	var b strings.Builder
	for _, k := range s.keys() {
		fmt.Fprintf(&b, "%s: %s # %s\n", k.name, k.yaml(s.texts[k.name]), s.sources[k.name])
	}
	text, _ := yaml.Marshal(map[string]any{"redis-nodes": s.RedisNodes.exceptions, "policies": fieldsOf(s.Policies)})
	b.Write(text) // maps of strings have a form
	return secret.Hide(b.String())
}
