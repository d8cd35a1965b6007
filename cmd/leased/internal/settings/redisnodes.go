package settings

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

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
	var probe RedisAccess
	if rule := probe.set(field, value); rule != "" {
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

// Exceptions returns the sorted addresses of the nodes that have their own options.
func (n *RedisNodes) Exceptions() []string { return slices.Sorted(maps.Keys(n.exceptions)) }

// Exception returns the options that only one node has.
func (n *RedisNodes) Exception(address string) map[string]string { return n.exceptions[address] }

// At returns how to connect to one node.
func (n *RedisNodes) At(address string) RedisAccess {
	access := n.RedisAccess
	for _, field := range RedisFields {
		if value, given := n.exceptions[address][field]; given {
			_ = access.set(field, value) // Except has checked it
		}
	}
	return access
}

// Check reads the files of the given nodes, and of the nodes that have their own options,
// and reports the first invalid one.
func (n *RedisNodes) Check(addresses []string) error {
	for _, address := range slices.Concat(addresses, n.Exceptions()) {
		access := n.At(address)
		if _, err := access.Options(address); err != nil {
			return fmt.Errorf("redis node %s: %w", address, err)
		}
	}
	return nil
}

// Options returns the go-redis options for a node. If the settings do not allow a
// connection, such as one that would send the password unencrypted, every attempt
// to connect fails with the reason and sends nothing.
func (n *RedisNodes) Options(address string) *redis.Options {
	n.mu.Lock()
	defer n.mu.Unlock()
	options := n.made[address]
	if options == nil {
		access := n.At(address)
		var err error
		if options, err = access.Options(address); err != nil {
			return &redis.Options{Addr: address, Dialer: func(context.Context, string, string) (net.Conn, error) {
				return nil,
					err
			}}
		}
		if n.made == nil {
			n.made = map[string]*redis.Options{}
		}
		n.made[address] = options
	}
	own := *options // go-redis fills in defaults
	return &own
}
