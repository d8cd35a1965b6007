package settings

import (
	"errors"
	"fmt"
	"strings"

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
		key, options := "redis-nodes: "+address, strings.Join(RedisFields, ", ")
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

// printRedisNodes returns redis-nodes in the form of the file.
func printRedisNodes(nodes *RedisNodes) string {
	addresses := nodes.Exceptions()
	if len(addresses) == 0 {
		return "redis-nodes: {}\n"
	}
	var b strings.Builder
	b.WriteString("redis-nodes:\n")
	for _, address := range addresses {
		fmt.Fprintf(&b, "  %q:\n", address)
		for _, field := range RedisFields {
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
		if clear, ok := errors.AsType[*ClearError](CheckClear(address)); ok {
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
