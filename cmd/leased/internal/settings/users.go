package settings

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/auth"
)

// hashPrefix names the hash function.
const hashPrefix = "sha256:"

// secretPrefix is the prefix of secrets. Errors do not repeat values with it.
const secretPrefix = "leased_"

const (
	nameRule = "must have 1 to 64 characters (letters, digits, . _ @ -), start with a letter or digit, and not " +
		"start with " + secretPrefix + ", the prefix of secrets"
	certificateRule = "must be the subject common name of a client certificate, 1 to 64 printable characters, for a " +
		"user that is no member account"
	hashRule = "must be " + hashPrefix + " and 64 hexadecimal digits, as written by `leased user add`; " +
		"passwords and other hashes are not accepted"
)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// checkName rejects an invalid user name.
func checkName(name string) error {
	if !nameForm.MatchString(name) || strings.HasPrefix(name, secretPrefix) {
		return &Error{Key: "name", Value: shown(name), Rule: nameRule}
	}
	return nil
}

// checkCertificate rejects an invalid subject common name, and a member account with a
// certificate: members authenticate with a secret.
func checkCertificate(name string, member bool) error {
	if member || len(name) > 64 || fencing.Resource(name).Validate() != nil {
		return &Error{Key: "certificate", Value: shown(name), Rule: certificateRule}
	}
	return nil
}

// shown returns a value for an error.
func shown(value string) string {
	switch {
	case value == "":
		return "empty"
	case strings.HasPrefix(value, secretPrefix):
		return "not shown: it has the prefix of a secret"
	}
	return fmt.Sprintf("%.80s", value)
}

// ReadUsers reads the users of a file.
func ReadUsers(path string) ([]auth.User, error) {
	list, err := readDocument(path)
	if err != nil {
		return nil, err
	}
	if list.Kind != yaml.SequenceNode { // it may be a file with a secret
		return nil, invalid(path, list, "users", kindOf(list), "must be a list of users, each with name and hashes")
	}
	var users []auth.User
	names, hashes, certificates := map[string]bool{}, map[secret.Hash]string{}, map[string]string{}
	for _, node := range list.Content {
		user, err := readUser(path, node)
		if err != nil {
			return nil, err
		}
		if names[user.Name] {
			return nil, invalid(path, node, "name", user.Name, "is given twice in this file")
		}
		if other, twice := certificates[user.Certificate]; twice && user.Certificate != "" {
			return nil, invalid(path, node, "certificate", "of "+user.Name, "must differ from the certificate of "+other+
				": a certificate identifies one user")
		}
		certificates[user.Certificate] = user.Name
		for _, hash := range user.Hashes {
			if other, twice := hashes[hash]; twice {
				return nil, invalid(path, node, "hashes", "of "+user.Name, "must differ from the hashes of "+other+
					": a secret identifies one user, and is listed once")
			}
			hashes[hash] = user.Name
		}
		names[user.Name] = true
		users = append(users, user)
	}
	return users, nil
}

// readDocument reads the only document of a file with users.
func readDocument(path string) (*yaml.Node, error) {
	if err := secret.CheckPath(path); err != nil {
		return nil, fmt.Errorf("read users: %w", err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read users: %w", err)
	}
	document, err := onlyDocument(path, "users", data)
	if err == nil && document == nil {
		return nil, fmt.Errorf("%s: %w", path, ErrNoUsers)
	}
	return document, err
}

// userFields are the fields of a user in the file. Those with a rule are lists, which
// must follow it; the others are single values.
var userFields = []string{"name", "hashes", "certificate", "member", "allow"}

var listRules = map[string]string{
	"hashes": "must be a list of hashes, each " + hashPrefix + " and 64 hexadecimal digits",
	"allow":  "must be a list of rules, such as [\"acquire:jobs/*\"]",
}

// readUser reads and validates one user.
func readUser(path string, entry *yaml.Node) (user auth.User, err error) {
	if entry.Kind != yaml.MappingNode {
		return user, invalid(path, entry, "users", kindOf(entry), "must be a map with name and hashes for each user")
	}
	values := map[string]*yaml.Node{}
	for i := 0; i+1 < len(entry.Content); i += 2 {
		key, value := entry.Content[i].Value, entry.Content[i+1]
		broken := func(rule string) error { return invalid(path, value, key, kindOf(value), rule) }
		switch {
		case !slices.Contains(userFields, key): // the value may be a password
			return user, invalid(path, value, shown(key), "not shown", "is not a field of a user; the fields are "+
				strings.Join(userFields, ", "))
		case values[key] != nil:
			return user, broken("is given twice")
		case listRules[key] != "" && value.Kind != yaml.SequenceNode:
			return user, broken(listRules[key])
		case listRules[key] == "" && value.Kind != yaml.ScalarNode:
			return user, broken("must be a single value")
		}
		values[key] = value
	}
	text := func(key string) string { return cmp.Or(values[key], &yaml.Node{}).Value }
	user.Name, user.Certificate = text("name"), text("certificate")
	if checkName(user.Name) != nil {
		return user, invalid(path, entry, "name", shown(user.Name), nameRule)
	}
	switch text("member") {
	case "true":
		user.Member = true
	case "", "false":
	default:
		return user, invalid(path, entry, "member", "of "+user.Name+", not shown", "must be true or false")
	}
	if user.Rules, err = readRules(path, values["allow"]); err != nil {
		return user, err
	}
	if values["certificate"] != nil && checkCertificate(user.Certificate, user.Member) != nil {
		return user, invalid(path, entry, "certificate", "of "+user.Name, certificateRule)
	}
	if user.Hashes, err = readHashes(path, user.Name, values["hashes"]); err != nil {
		return user, err
	}
	if len(user.Hashes) == 0 && user.Certificate == "" {
		return user, invalid(path, entry, "hashes", "of "+user.Name+", empty",
			"must have an entry, unless the user has a certificate; `leased user secret add` makes a secret and adds its hash")
	}
	return user, nil
}

// readHashes parses the hashes of a user's secrets. One may be a password: errors do not
// repeat it.
func readHashes(path, name string, list *yaml.Node) (hashes []secret.Hash, err error) {
	if list == nil {
		return nil, nil
	}
	for _, node := range list.Content {
		digits, ok := strings.CutPrefix(node.Value, hashPrefix)
		raw, err := hex.DecodeString(digits)
		if !ok || err != nil || len(raw) != len(secret.Hash{}) {
			return nil, invalid(path, node, "hashes", "of "+name+", not shown", hashRule)
		}
		hashes = append(hashes, secret.Hash(raw))
	}
	return hashes, nil
}

// readRules parses the rules of a user.
func readRules(path string, list *yaml.Node) (rules auth.Rules, err error) {
	if list == nil {
		return nil, nil
	}
	for _, node := range list.Content {
		if node.Kind != yaml.ScalarNode {
			return nil, invalid(path, node, "allow", kindOf(node), listRules["allow"])
		}
		rule, err := auth.ParseRule(node.Value)
		switch {
		case err != nil && strings.HasPrefix(node.Value, secretPrefix):
			return nil, invalid(path, node, "allow", shown(node.Value), "must be a rule, such as acquire:jobs/*")
		case err != nil:
			return nil, invalid(path, node, "allow", shown(node.Value), err.Error())
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// invalid returns the error of a value in the file.
func invalid(path string, node *yaml.Node, key, value, rule string) error {
	return &Error{Key: key, Value: value, Source: sourceOf(path, node), Rule: rule}
}

// kindOf describes a node for an error without its value, which may be a secret.
func kindOf(node *yaml.Node) string {
	if node.Kind == yaml.ScalarNode {
		return "a single value, not shown"
	}
	return describe(node)
}
