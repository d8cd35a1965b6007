package settings

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// readFile reads the values of a YAML file.
func (s *Settings) readFile(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the configuration file: %w", err)
	}
	document, err := onlyDocument(path, "config", data)
	if err != nil || document == nil {
		return err
	}
	return eachField(path, "config", document, "settings", func(name string, node *yaml.Node) error {
		switch name {
		case "policies":
			return s.readPolicies(path, node)
		case "redis-nodes":
			return s.readRedisNodes(path, node)
		}
		keys := s.keys()
		i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
		if i < 0 {
			return broken(path, name, node, "is not a setting; `leased serve --help` lists all settings")
		}
		value, rule := scalar(node, keys[i].kind == listed)
		if rule != "" {
			return broken(path, name, node, rule)
		}
		s.give(name, value, sourceOf(path, node))
		return nil
	})
}

// onlyDocument returns the only document of a file, or nil if the file is empty.
func onlyDocument(path, key string, data []byte) (*yaml.Node, error) {
	var document, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF) || err == nil && len(document.Content) == 0:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w: %s: %s", ErrInvalid, path, secret.Hide(err.Error()))
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) { // its settings or users would be lost
		return nil, &Error{Key: key, Value: "more than one document", Source: path,
			Rule: "must be a single document; remove the --- line and what follows it"}
	}
	return document.Content[0], nil
}

// eachField calls f for each field of a map, and joins the errors. what describes the
// fields.
func eachField(path, key string, node *yaml.Node, what string, f func(name string, value *yaml.Node) error) error {
	if node.Kind != yaml.MappingNode {
		return broken(path, key, node, "must be a map of "+what+", one `name: value` per line")
	}
	seen := map[string]bool{}
	var invalid error
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i].Value, node.Content[i+1]
		if seen[name] {
			invalid = errors.Join(invalid, broken(path, name, value, "is given twice in this file"))
			continue
		}
		seen[name] = true
		invalid = errors.Join(invalid, f(name, value))
	}
	return invalid
}

// broken returns the error of a value that breaks a rule.
func broken(path, key string, node *yaml.Node, rule string) error {
	return &Error{Key: key, Value: describe(node), Source: sourceOf(path, node), Rule: rule}
}

func sourceOf(path string, node *yaml.Node) string { return fmt.Sprintf("%s:%d", path, node.Line) }

// describe returns a value for an error.
func describe(node *yaml.Node) string {
	switch node.Kind {
	case yaml.ScalarNode:
		return cmp.Or(node.Value, "empty")
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a map"
	}
	return "another kind of value"
}

// scalar returns the value of a node in the form of a flag.
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
	return "", "must be a single value"
}

const (
	policyFields = "prefix, mode, ttl, renew, drift and lock-delay"
	policiesRule = "must be a list of policies, each with prefix and mode"
)

// ReadPolicies returns the policies of a configuration file, or of a file that has
// nothing else.
func ReadPolicies(path string) ([]lease.Policy, error) {
	s := &Settings{texts: map[string]string{}, sources: map[string]string{}}
	if err := s.readFile(path); err != nil {
		return nil, err
	}
	if len(s.Policies) == 0 {
		return nil, &Error{Key: "policies", Value: "empty", Source: path, Rule: policiesRule}
	}
	return s.Policies, nil
}

func (s *Settings) readPolicies(path string, node *yaml.Node) error {
	if node.Tag == "!!null" {
		return nil
	}
	if node.Kind != yaml.SequenceNode {
		return broken(path, "policies", node, policiesRule)
	}
	for _, entry := range node.Content {
		p, err := readPolicy(path, entry)
		if err != nil {
			return err
		}
		s.Policies = append(s.Policies, p)
	}
	if _, err := engine.NewPolicies(s.Policies...); err != nil {
		return fmt.Errorf("%w: policies (from %s): %w", ErrInvalid, sourceOf(path, node), err)
	}
	return nil
}

// readPolicy reads and validates one policy.
func readPolicy(path string, entry *yaml.Node) (p lease.Policy, err error) {
	durations := durationsOf(&p)
	err = eachField(path, "policies", entry, policyFields, func(name string, node *yaml.Node) (err error) {
		broken := func(rule string) error { return broken(path, "policies: "+name, node, rule) }
		duration, isDuration := durations[name]
		switch {
		case node.Kind != yaml.ScalarNode:
			return broken("must be a single value")
		case name == "prefix":
			p.Prefix = node.Value
		case name == "mode":
			if p.Mode, err = lease.ParseMode(node.Value); err != nil {
				return broken("must be efficiency or correctness")
			}
		case isDuration:
			if *duration, err = time.ParseDuration(node.Value); err != nil {
				return broken("must be a duration such as 10s")
			}
			if *duration == 0 && name != "lock-delay" {
				return broken("must be above 0; leave it out for the default")
			}
		default:
			return broken("is not a field of a policy; the fields are " + policyFields)
		}
		return nil
	})
	switch {
	case err != nil:
		return p, err
	case p.Mode == lease.AnyMode:
		return p, &Error{Key: "policies: mode", Value: "empty", Source: sourceOf(path, entry),
			Rule: "must be efficiency or correctness"}
	}
	if err := p.Validate(); err != nil {
		return p, fmt.Errorf("%w: policies (from %s): %w", ErrInvalid, sourceOf(path, entry), err)
	}
	return p, nil
}

// durationsOf returns the durations of a policy by their names in the file.
func durationsOf(p *lease.Policy) map[string]*time.Duration {
	return map[string]*time.Duration{"ttl": &p.TTL, "renew": &p.Renew, "drift": &p.Drift, "lock-delay": &p.LockDelay}
}

// fieldsOf returns policies in the form of the file.
func fieldsOf(policies []lease.Policy) []map[string]string {
	all := []map[string]string{}
	for _, p := range policies {
		fields := map[string]string{"prefix": p.Prefix, "mode": p.Mode.String()}
		for name, duration := range durationsOf(&p) {
			if *duration != 0 {
				fields[name] = duration.String()
			}
		}
		all = append(all, fields)
	}
	return all
}
