package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/leased-project/leased/lease"
)

// policyEntry is a policy as the file has it.
type policyEntry struct {
	Prefix    string `yaml:"prefix"`
	Mode      string `yaml:"mode"`
	TTL       string `yaml:"ttl,omitempty"`
	Renew     string `yaml:"renew,omitempty"`
	Drift     string `yaml:"drift,omitempty"`
	LockDelay string `yaml:"lock-delay,omitempty"`
}

// readFile takes the values of a YAML file.
func (s *Settings) readFile(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	var nodes map[string]yaml.Node
	if err := yaml.Unmarshal(data, &nodes); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
	}
	for name, node := range nodes {
		source := fmt.Sprintf("%s:%d", path, node.Line)
		if name == "policies" {
			if err := s.readPolicies(source, &node); err != nil {
				return err
			}
			continue
		}
		i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
		if i < 0 {
			return &Error{Key: name, Value: node.Value, Source: source, Rule: "is no setting; see `leased serve --help` for those there are"}
		}
		value, rule := scalar(&node, keys[i].list)
		s.give(name, value, source)
		if rule != "" {
			return s.broken(name, rule)
		}
	}
	return nil
}

// scalar is the value of a node as a flag would have it.
func scalar(node *yaml.Node, list bool) (value, rule string) {
	switch {
	case node.Kind == yaml.ScalarNode && node.Tag == "!!null":
		return "", ""
	case node.Kind == yaml.ScalarNode:
		return node.Value, ""
	case node.Kind == yaml.SequenceNode && list:
		var parts []string
		for _, part := range node.Content {
			parts = append(parts, part.Value)
		}
		return strings.Join(parts, ","), ""
	case list:
		return "", "must be a list"
	}
	return "", "must be one value"
}

func (s *Settings) readPolicies(source string, node *yaml.Node) error {
	raw, err := yaml.Marshal(node)
	if err != nil {
		return fmt.Errorf("%w: policies (from %s): %w", ErrInvalid, source, err)
	}
	var entries []policyEntry
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	decoder.KnownFields(true)
	if err := decoder.Decode(&entries); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: policies (from %s): %w", ErrInvalid, source, err)
	}
	for _, e := range entries {
		p, err := e.policy()
		if err != nil {
			return fmt.Errorf("%w: policies (from %s): %w", ErrInvalid, source, err)
		}
		s.Policies = append(s.Policies, p)
	}
	if _, err := lease.NewPolicies(s.Policies...); err != nil {
		return fmt.Errorf("%w: policies (from %s): %w", ErrInvalid, source, err)
	}
	return nil
}

func (e policyEntry) policy() (lease.Policy, error) {
	mode, err := lease.ParseMode(e.Mode)
	if err != nil {
		return lease.Policy{}, fmt.Errorf("policy for %q: mode (%s) must be efficiency or correctness", e.Prefix, e.Mode)
	}
	p := lease.Policy{Prefix: e.Prefix, Mode: mode}
	for _, field := range []struct {
		name, text string
		value      *time.Duration
	}{{"ttl", e.TTL, &p.TTL}, {"renew", e.Renew, &p.Renew}, {"drift", e.Drift, &p.Drift}, {"lock-delay", e.LockDelay, &p.LockDelay}} {
		if field.text == "" {
			continue
		}
		if *field.value, err = time.ParseDuration(field.text); err != nil {
			return lease.Policy{}, fmt.Errorf("policy for %q: %s (%s) must be a duration such as 10s", e.Prefix, field.name, field.text)
		}
	}
	return p, p.Validate()
}

// printPolicies is the policies as the file has them.
func printPolicies(policies []lease.Policy) string {
	if len(policies) == 0 {
		return "policies: []\n"
	}
	var b strings.Builder
	b.WriteString("policies:\n")
	for _, p := range policies {
		fmt.Fprintf(&b, "  - prefix: %s\n    mode: %s\n", strconv.Quote(p.Prefix), p.Mode)
		for _, field := range []struct {
			name  string
			value time.Duration
		}{{"ttl", p.TTL}, {"renew", p.Renew}, {"drift", p.Drift}, {"lock-delay", p.LockDelay}} {
			if field.value != 0 {
				fmt.Fprintf(&b, "    %s: %v\n", field.name, field.value)
			}
		}
	}
	return b.String()
}
