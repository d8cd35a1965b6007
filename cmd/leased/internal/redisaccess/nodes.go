package redisaccess

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Nodes is how Redis nodes are reached: all of them in the same way, but for
// exceptions. Only Options may be called concurrently.
type Nodes struct {
	// Access is for every node.
	Access
	// exceptions are the settings that a node has of its own, by address.
	exceptions map[string]map[string]string

	mu   sync.Mutex
	made map[string]*redis.Options
}

// Except gives a node a setting of its own. It returns the rule that the setting
// breaks, or nothing.
func (n *Nodes) Except(address, field, value string) (rule string) {
	var probe Access
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

// Exceptions returns the addresses of the nodes with settings of their own,
// sorted.
func (n *Nodes) Exceptions() []string { return slices.Sorted(maps.Keys(n.exceptions)) }

// Exception returns the settings that a node has of its own.
func (n *Nodes) Exception(address string) map[string]string { return n.exceptions[address] }

// At returns how one node is reached.
func (n *Nodes) At(address string) Access {
	access := n.Access
	for _, field := range Fields {
		if value, given := n.exceptions[address][field]; given {
			_ = access.set(field, value) // Except has checked it
		}
	}
	return access
}

// Check reads the files for the given nodes, and for those with settings of their
// own, and reports the first that is bad.
func (n *Nodes) Check(addresses []string) error {
	for _, address := range slices.Concat(addresses, n.Exceptions()) {
		access := n.At(address)
		if _, err := access.Options(address); err != nil {
			return fmt.Errorf("redis node %s: %w", address, err)
		}
	}
	return nil
}

// Options returns the options of connections to a node. If there can be none, as
// for a node on another host that would get a password in clear, each attempt to
// connect fails with the reason, and nothing is sent.
func (n *Nodes) Options(address string) *redis.Options {
	n.mu.Lock()
	defer n.mu.Unlock()
	options := n.made[address]
	if options == nil {
		access := n.At(address)
		var err error
		if options, err = access.Options(address); err != nil {
			return &redis.Options{Addr: address, Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, err }}
		}
		if n.made == nil {
			n.made = map[string]*redis.Options{}
		}
		n.made[address] = options
	}
	own := *options // go-redis fills in defaults
	return &own
}
