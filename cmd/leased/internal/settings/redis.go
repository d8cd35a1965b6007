package settings

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/leased-project/leased/cmd/leased/internal/redisaccess"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
)

var redisKeys = []key{
	list("redis", "", "first Redis nodes of efficiency mode: an odd number of masters, HOST:PORT, separated by commas; "+
		"to change them later, use leased redis fleet set", func(s *Settings) *[]string { return &s.Redis }),
	text("redis-namespace", redlockadapter.DefaultNamespace, "prefix of the keys in Redis", func(s *Settings) *string { return &s.RedisNamespace }),
	duration("redis-max-ttl", redlockadapter.DefaultMaxTTL, lease.MinTTL, "longest TTL in efficiency mode",
		func(s *Settings) *time.Duration { return &s.RedisMaxTTL }),
	text("redis-user", "", "ACL user on the Redis nodes (default: the default user of Redis)", func(s *Settings) *string { return &s.RedisNodes.User }),
	text("redis-password-file", "", "file with the password of the Redis nodes; or give the password in "+redisaccess.PasswordVariable,
		func(s *Settings) *string { return &s.RedisNodes.PasswordFile }),
	boolean("redis-tls", "encrypt the connections to the Redis nodes", func(s *Settings) *bool { return &s.RedisNodes.TLS }),
	text("redis-tls-ca", "", "PEM file with the CA of the Redis nodes' certificates (default: the CAs of the system)",
		func(s *Settings) *string { return &s.RedisNodes.CA }),
	text("redis-tls-cert", "", "PEM file with this member's certificate for Redis, if the nodes require one", func(s *Settings) *string { return &s.RedisNodes.Cert }),
	text("redis-tls-key", "", "PEM file with the key of redis-tls-cert", func(s *Settings) *string { return &s.RedisNodes.Key }),
	boolean("redis-insecure", "allow sending the password unencrypted to another host", func(s *Settings) *bool { return &s.RedisNodes.Insecure }),
}

// Fleet returns the first Redis nodes of the service.
func (s *Settings) Fleet() engine.Fleet {
	if len(s.Redis) == 0 {
		return engine.Fleet{}
	}
	return engine.Fleet{Namespace: s.RedisNamespace, Addresses: s.Redis, MaxTTL: s.RedisMaxTTL}
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
		s.sources["redis-nodes: "+address] = sourceOf(path, fields)
		return eachField(path, "redis-nodes: "+address, fields, strings.Join(redisaccess.Fields, ", "), func(name string, value *yaml.Node) error {
			rule := "must be a single value"
			if value.Kind == yaml.ScalarNode {
				rule = s.RedisNodes.Except(address, name, value.Value)
			}
			if rule != "" {
				return &Error{Key: "redis-nodes: " + address + ": " + name, Value: describe(value), Source: sourceOf(path, value), Rule: rule}
			}
			return nil
		})
	})
}

// printRedisNodes returns redis-nodes in the form of the file.
func printRedisNodes(nodes *redisaccess.Nodes) string {
	addresses := nodes.Exceptions()
	if len(addresses) == 0 {
		return "redis-nodes: {}\n"
	}
	var b strings.Builder
	b.WriteString("redis-nodes:\n")
	for _, address := range addresses {
		fmt.Fprintf(&b, "  %q:\n", address)
		for _, field := range redisaccess.Fields {
			if value, given := nodes.Exception(address)[field]; given {
				fmt.Fprintf(&b, "    %s: %q\n", field, value)
			}
		}
	}
	return b.String()
}

// validateRedis checks the fleet and the options of its nodes.
func (s *Settings) validateRedis() error {
	if err := s.Fleet().Validate(); err != nil {
		return s.broken("redis", "is not a valid fleet: "+strings.TrimPrefix(err.Error(), lease.ErrInvalid.Error()+": "))
	}
	if key, rule := s.RedisNodes.Broken("redis-"); rule != "" {
		return s.broken(key, rule)
	}
	for _, address := range s.RedisNodes.Exceptions() {
		access, at := s.RedisNodes.At(address), "redis-nodes: "+address
		if key, rule := access.Broken(at + ": "); rule != "" {
			return &Error{Key: key, Value: "combined with the settings of all nodes", Source: s.sources[at], Rule: rule}
		}
	}
	for _, address := range s.Redis {
		access := s.RedisNodes.At(address)
		if access.TLS || access.Insecure || access.Password == "" && access.PasswordFile == "" {
			continue
		}
		var clear *redisaccess.ClearError
		if err := redisaccess.CheckClear(address); errors.As(err, &clear) {
			return s.broken("redis", clear.Error())
		}
	}
	for _, p := range s.Policies {
		if ttl := p.Filled().TTL; p.Mode == lease.Efficiency && ttl > s.RedisMaxTTL {
			return s.broken("redis-max-ttl", fmt.Sprintf("must be at least the ttl (%v) of the policy for %q", ttl, p.Prefix))
		}
	}
	return nil
}
