package userfile

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/lease/remote/secret"
)

// kind begins a hash, so that another kind can come later.
const kind = "sha256:"

// mark begins a secret. What begins so is not repeated in errors.
const mark = "leased_"

const (
	nameRule = "must have 1 to 64 letters, digits, or any of . _ @ -, and begin with a letter or digit, but not with " + mark + ", as secrets do"
	hashRule = "must be " + kind + " and 64 hexadecimal digits, as `leased user add` writes it; passwords and other hashes are not taken"
)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// CheckName refuses what is no name of a user.
func CheckName(name string) error {
	if !nameForm.MatchString(name) || strings.HasPrefix(name, mark) {
		return &Error{Key: "name", Value: shown(name), Rule: nameRule}
	}
	return nil
}

// shown is a value for an error.
func shown(value string) string {
	switch {
	case value == "":
		return "empty"
	case strings.HasPrefix(value, mark):
		return "not shown: it begins as a secret does"
	}
	return fmt.Sprintf("%.80s", value)
}

// Read reads the users of a file.
func Read(path string) ([]server.User, error) {
	list, err := readDocument(path)
	if err != nil {
		return nil, err
	}
	if list.Kind != yaml.SequenceNode { // it may be the file of a secret
		return nil, &Error{Key: "users", Value: kindOf(list), Source: at(path, list), Rule: "must be a list of users, each with name and hash"}
	}
	var users []server.User
	names, hashes := map[string]bool{}, map[secret.Hash]string{}
	for _, entry := range list.Content {
		user, err := readUser(path, entry)
		if err != nil {
			return nil, err
		}
		if names[user.Name] {
			return nil, &Error{Key: "name", Value: user.Name, Source: at(path, entry), Rule: "must be given once; it is in this file before"}
		}
		if other, twice := hashes[user.Hash]; twice {
			return nil, &Error{Key: "hash", Value: "of " + user.Name, Source: at(path, entry),
				Rule: "must be of a secret of its own: it is the same as that of " + other}
		}
		names[user.Name], hashes[user.Hash] = true, user.Name
		users = append(users, user)
	}
	return users, nil
}

// readDocument reads the one document of a file.
func readDocument(path string) (*yaml.Node, error) {
	if err := secret.CheckPath(path); err != nil {
		return nil, fmt.Errorf("read users: %w", err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read users: %w", err)
	}
	var document, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF) || err == nil && len(document.Content) == 0:
		return nil, fmt.Errorf("%s: %w", path, ErrEmpty)
	case err != nil:
		return nil, fmt.Errorf("%w: %s: %s", ErrInvalid, path, secret.Hide(err.Error()))
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) { // its users would be lost
		return nil, &Error{Key: "users", Value: "more than one document", Source: path, Rule: "must be one list; nothing may follow it, no line of --- either"}
	}
	return document.Content[0], nil
}

// readUser reads one entry, which is valid.
func readUser(path string, entry *yaml.Node) (user server.User, err error) {
	if entry.Kind != yaml.MappingNode {
		return user, &Error{Key: "users", Value: kindOf(entry), Source: at(path, entry), Rule: "must have an entry with name and hash for each user"}
	}
	values := map[string]string{}
	for i := 0; i+1 < len(entry.Content); i += 2 {
		key, value := entry.Content[i].Value, entry.Content[i+1]
		broken := func(rule string) error {
			return &Error{Key: key, Value: kindOf(value), Source: at(path, value), Rule: rule}
		}
		_, twice := values[key]
		switch {
		case key != "name" && key != "hash" && key != "member": // the value may be a password
			return user, &Error{Key: shown(key), Value: "not shown", Source: at(path, value), Rule: "is no field of a user; there are name, hash and member"}
		case value.Kind != yaml.ScalarNode:
			return user, broken("must be one value")
		case twice:
			return user, broken("must be given once")
		}
		values[key] = value.Value
	}
	user.Name = values["name"]
	if CheckName(user.Name) != nil {
		return user, &Error{Key: "name", Value: shown(user.Name), Source: at(path, entry), Rule: nameRule}
	}
	switch values["member"] {
	case "true":
		user.Member = true
	case "", "false":
	default:
		return user, &Error{Key: "member", Value: "of " + user.Name + ", not shown", Source: at(path, entry), Rule: "must be true or false"}
	}
	digits, ok := strings.CutPrefix(values["hash"], kind)
	hash, err := hex.DecodeString(digits)
	if !ok || err != nil || len(hash) != len(user.Hash) { // it may be a password: it is not repeated
		value := "of " + user.Name + ", not shown"
		if values["hash"] == "" {
			value = "of " + user.Name + ", empty"
		}
		return user, &Error{Key: "hash", Value: value, Source: at(path, entry), Rule: hashRule}
	}
	user.Hash = secret.Hash(hash)
	return user, nil
}

func at(path string, node *yaml.Node) string { return fmt.Sprintf("%s:%d", path, node.Line) }

// kindOf is what a node is, for an error. What it says may be a secret.
func kindOf(node *yaml.Node) string {
	switch node.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a map"
	}
	return "one value, not shown"
}
