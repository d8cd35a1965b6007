package wire

import (
	"fmt"
	"slices"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

// FromPolicy converts a policy to a message.
func FromPolicy(p engine.Policy) *pb.Policy {
	return &pb.Policy{Prefix: p.Prefix, Mode: ModeText(p.Mode), Next: ModeText(p.Next), Ttl: DurationText(p.TTL),
		Renew: DurationText(p.Renew),
		Drift: DurationText(p.Drift), LockDelay: DurationText(p.LockDelay)}
}

// ToPolicy converts a message to a policy and validates it.
func ToPolicy(m *pb.Policy) (p engine.Policy, err error) {
	p.Prefix = m.GetPrefix()
	if p.Mode, err = engine.ParseMode(m.GetMode()); err != nil {
		return p, err
	}
	if p.Next, err = ParseMode(m.GetNext()); err != nil {
		return p, err
	}
	for _, f := range []struct {
		name, text string
		to         *time.Duration
	}{{"ttl", m.Ttl, &p.TTL}, {"renew", m.Renew, &p.Renew}, {"drift", m.Drift, &p.Drift},
		{"lockDelay", m.LockDelay, &p.LockDelay}} {
		parse := ParsePositive
		if f.name == "lockDelay" { // 0 is its default
			parse = ParseDuration
		}
		if *f.to, err = parse(f.name, f.text); err != nil {
			return p, err
		}
	}
	return p, p.Validate()
}

// FromFleet converts a Redis fleet to a message, nil if it has no nodes.
func FromFleet(f engine.Fleet) *pb.RedisFleet {
	if f.IsZero() {
		return nil
	}
	return &pb.RedisFleet{Namespace: f.Namespace, Addresses: slices.Clone(f.Addresses), MaxTtl: DurationText(f.MaxTTL)}
}

// ToFleet converts a message to a Redis fleet and validates it.
func ToFleet(m *pb.RedisFleet) (engine.Fleet, error) {
	if len(m.GetAddresses()) == 0 {
		return engine.Fleet{}, nil
	}
	maxTTL, err := ParseDuration("maxTtl", m.MaxTtl)
	if err != nil {
		return engine.Fleet{}, err
	}
	f := engine.Fleet{Namespace: m.Namespace, Addresses: slices.Clone(m.Addresses), MaxTTL: maxTTL}
	return f, f.Validate()
}

// FromTopology converts a topology to a message.
func FromTopology(t engine.Topology) *pb.Topology {
	m := &pb.Topology{Version: t.Version, Fleet: FromFleet(t.Fleet), Ready: t.Ready, User: t.User,
		Lives: slices.Clone(t.Lives)}
	for _, p := range t.Policies.All() {
		m.Policies = append(m.Policies, FromPolicy(p))
	}
	return m
}

// ToTopology converts a message to a topology and validates its policies and fleet.
func ToTopology(m *pb.Topology) (engine.Topology, error) {
	policies := make([]engine.Policy, 0, len(m.GetPolicies()))
	for _, p := range m.GetPolicies() {
		policy, err := ToPolicy(p)
		if err != nil {
			return engine.Topology{}, fmt.Errorf("topology %d: %w", m.Version, err)
		}
		policies = append(policies, policy)
	}
	set, err := engine.NewPolicies(policies...)
	if err != nil {
		return engine.Topology{}, fmt.Errorf("topology %d: %w", m.Version, err)
	}
	fleet, err := ToFleet(m.GetFleet())
	if err != nil {
		return engine.Topology{}, fmt.Errorf("topology %d: %w", m.GetVersion(), err)
	}
	if n := len(m.GetLives()); n != 0 && n != len(fleet.Addresses) {
		return engine.Topology{}, fmt.Errorf("%w: topology %d: %d lives of %d Redis nodes", engine.ErrInvalid, m.GetVersion(),
			n, len(fleet.Addresses))
	}
	return engine.Topology{Version: m.GetVersion(), Policies: set, Fleet: fleet, Lives: slices.Clone(m.GetLives()),
		Ready: m.GetReady(), User: m.GetUser()}, nil
}
