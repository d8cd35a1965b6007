package settings

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// Fleet returns the first Redis nodes of the service.
func (s *Settings) Fleet() engine.Fleet {
	if len(s.Redis) == 0 {
		return engine.Fleet{}
	}
	return engine.Fleet{Namespace: s.RedisNamespace, Addresses: s.Redis, MaxTTL: s.RedisMaxTTL}
}

// LoadRedis returns how a program that is no member connects to Redis nodes: what the flags of RedisFlags and the
// environment say.
func LoadRedis(flags *pflag.FlagSet, environ func(string) (string, bool)) (*RedisNodes, error) {
	s := &Settings{texts: map[string]string{}, sources: map[string]string{}}
	given := func(name string) (string, bool) { // an empty variable says nothing
		value, _ := environ(name)
		return value, value != ""
	}
	if err := s.load(s.RedisNodes.keys(), flags, given); err != nil {
		return nil, err
	}
	s.RedisNodes.Password, _ = environ(PasswordVariable)
	_, err := s.RedisNodes.RedisAccess.Options("127.0.0.1:6379") // nothing but the address depends on the node
	return &s.RedisNodes, err
}

// RedisNodes has the options of connections to several Redis nodes: the same for all, except for
// single nodes with their own options. Only Options is safe for concurrent use.
type RedisNodes struct {
	// RedisAccess applies to every node.
	RedisAccess
	// exceptions are the options of single nodes, by address.
	exceptions map[string]map[string]string

	mu   sync.Mutex
	made map[string]*redis.Options
}

// Except sets an option of a single node. It returns the rule that the value
// breaks, or "".
func (n *RedisNodes) Except(address, field, value string) (rule string) {
	if rule := new(RedisAccess).set(field, value); rule != "" {
		return rule
	}
	if n.exceptions == nil {
		n.exceptions = map[string]map[string]string{}
	}
	if n.exceptions[address] == nil {
		n.exceptions[address] = map[string]string{}
	}
	n.exceptions[address][field] = value
	return ""
}

// excepted returns the sorted addresses of the nodes that have their own options.
func (n *RedisNodes) excepted() []string { return slices.Sorted(maps.Keys(n.exceptions)) }

// At returns how to connect to one node.
func (n *RedisNodes) At(address string) RedisAccess {
	access := n.RedisAccess
	for _, field := range redisFields {
		if value, given := n.exceptions[address][field]; given {
			_ = access.set(field, value) // Except has checked it
		}
	}
	return access
}

// Check reads the files of the given nodes, and of the nodes that have their own options,
// and reports the first invalid one.
func (n *RedisNodes) Check(addresses []string) error {
	for _, address := range slices.Concat(addresses, n.excepted()) {
		access := n.At(address)
		if _, err := access.Options(address); err != nil {
			return fmt.Errorf("redis node %s: %w", address, err)
		}
	}
	return nil
}

// Options returns the go-redis options for a node. If the settings forbid the connection, for
// example because the password would be sent unencrypted, every dial fails and says why.
func (n *RedisNodes) Options(address string) *redis.Options {
	n.mu.Lock()
	defer n.mu.Unlock()
	options := n.made[address]
	if options == nil {
		access := n.At(address)
		var err error
		if options, err = access.Options(address); err != nil {
			refuse := func(context.Context, string, string) (net.Conn, error) { return nil, err }
			return &redis.Options{Addr: address, Dialer: refuse}
		}
		if n.made == nil {
			n.made = map[string]*redis.Options{}
		}
		n.made[address] = options
	}
	own := *options // go-redis fills in defaults
	return &own
}

// readRedisNodes reads the options of single nodes: a map from address to options.
func (s *Settings) readRedisNodes(path string, node *yaml.Node) error {
	if node.Tag == "!!null" {
		return nil
	}
	return eachField(path, "redis-nodes", node, "addresses", func(address string, fields *yaml.Node) error {
		if _, rule := hostOf(address); rule != "" {
			return &Error{Key: "redis-nodes", Value: address, Source: sourceOf(path, fields), Rule: rule}
		}
		key, options := "redis-nodes: "+address, strings.Join(redisFields, ", ")
		s.sources[key] = sourceOf(path, fields)
		return eachField(path, key, fields, options, func(name string, value *yaml.Node) error {
			rule := "must be a single value"
			if value.Kind == yaml.ScalarNode {
				rule = s.RedisNodes.Except(address, name, value.Value)
			}
			if rule != "" {
				return broken(path, key+": "+name, value, rule)
			}
			return nil
		})
	})
}

// validateRedis checks the fleet and the options of its nodes.
func (s *Settings) validateRedis() error {
	if err := s.Fleet().Validate(); err != nil {
		return s.broken("redis", "is not a valid fleet: "+strings.TrimPrefix(err.Error(), lease.ErrInvalid.Error()+": "))
	}
	if key, rule := s.RedisNodes.broken("redis-"); rule != "" {
		return s.broken(key, rule)
	}
	for _, address := range s.RedisNodes.excepted() {
		access, at := s.RedisNodes.At(address), "redis-nodes: "+address
		if key, rule := access.broken(at + ": "); rule != "" {
			return &Error{Key: key, Value: "combined with the settings of all nodes", Source: s.sources[at], Rule: rule}
		}
	}
	for _, address := range s.Redis {
		access := s.RedisNodes.At(address)
		if access.TLS || access.Insecure || access.Password == "" && access.PasswordFile == "" {
			continue
		}
		if err := checkClear(address); err != nil {
			return s.broken("redis", strings.TrimPrefix(err.Error(), ErrRedis.Error()+": "))
		}
	}
	for _, p := range s.Policies {
		if ttl := p.Filled().TTL; p.Mode == lease.Efficiency && ttl > s.RedisMaxTTL {
			return s.broken("redis-max-ttl", fmt.Sprintf("must be at least the ttl (%v) of the policy for %q", ttl, p.Prefix))
		}
	}
	return nil
}
