package settings

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/auth"
)

// unknownUser is the rule for the name of a user that must exist.
const unknownUser = "does not exist; `leased user list` shows the users"

const usersHeader = "# Users of the API. Change this file with `leased user`, then send SIGHUP to the members.\n" +
	"# It contains hashes of the secrets, not the secrets.\n"

// AddUser adds a user and returns its new secret, or "" for a user with a certificate. It
// creates the file if it does not exist.
func AddUser(path string, user auth.User) (text string, err error) {
	if err := checkName(user.Name); err != nil {
		return "", err
	}
	if user.Certificate != "" {
		err = checkCertificate(user.Certificate, user.Member)
	} else {
		text = secret.New()
		user.Hashes = []secret.Hash{secret.HashOf(text)}
	}
	if err != nil {
		return "", err
	}
	err = changeUsers(path, func(users []auth.User) ([]auth.User, error) {
		for _, other := range users {
			switch {
			case other.Name == user.Name:
				return nil, &Error{Key: "name", Value: user.Name, Source: path,
					Rule: "already exists; remove the user first, or choose another name"}
			case other.Certificate == user.Certificate && user.Certificate != "":
				return nil, &Error{Key: "certificate", Value: user.Certificate, Source: path,
					Rule: "already identifies user " + other.Name}
			}
		}
		return append(users, user), nil
	})
	if err != nil {
		return "", err
	}
	return text, nil
}

// AllowUser adds rules to a user. It ignores rules that the user has.
func AllowUser(path, name string, rules auth.Rules) error {
	return changeUser(path, name, func(user *auth.User) error {
		for _, rule := range rules {
			if !slices.Contains(user.Rules, rule) {
				user.Rules = append(user.Rules, rule)
			}
		}
		return nil
	})
}

// DenyUser removes rules from a user. Each must be a rule of the user: to remove a part of
// what a rule grants, replace the rule.
func DenyUser(path, name string, rules auth.Rules) error {
	return changeUser(path, name, func(user *auth.User) error {
		for _, rule := range rules {
			i := slices.Index(user.Rules, rule)
			if i < 0 {
				return &Error{Key: "rule", Value: rule.String(), Source: path,
					Rule: "is not a rule of " + name +
						"; `leased user list` shows its rules, and a rule can only be removed as a whole"}
			}
			user.Rules = slices.Delete(user.Rules, i, i+1)
		}
		return nil
	})
}

// SecretID returns the first digits of a hash. They identify a secret among the secrets of
// its user, and do not reveal it.
func SecretID(hash secret.Hash) string { return hex.EncodeToString(hash[:4]) }

// AddSecret adds a secret to a user and returns it. The other secrets of the user stay.
func AddSecret(path, name string) (text string, err error) {
	text = secret.New()
	err = changeUser(path, name, func(user *auth.User) error {
		user.Hashes = append(user.Hashes, secret.HashOf(text))
		return nil
	})
	if err != nil {
		return "", err
	}
	return text, nil
}

// RemoveSecret removes the secret with an id from a user. It refuses to remove the last
// one of a user without a certificate.
func RemoveSecret(path, name, id string) error {
	return changeUser(path, name, func(user *auth.User) error {
		left := slices.DeleteFunc(slices.Clone(user.Hashes), func(hash secret.Hash) bool { return SecretID(hash) == id })
		invalid := &Error{Key: "secret", Value: shown(id), Source: path}
		switch {
		case len(left) == len(user.Hashes):
			invalid.Rule = "is not the id of a secret of " + name + "; `leased user list` shows the ids"
		case len(left) == 0 && user.Certificate == "":
			invalid.Rule = "is the only secret of " + name + "; add another first with `leased user secret add`, or remove " +
				"the user"
		default:
			user.Hashes = left
			return nil
		}
		return invalid
	})
}

// changeUser changes one user.
func changeUser(path, name string, edit func(*auth.User) error) error {
	return changeUsers(path, func(users []auth.User) ([]auth.User, error) {
		i := slices.IndexFunc(users, func(u auth.User) bool { return u.Name == name })
		if i < 0 {
			return nil, &Error{Key: "name", Value: shown(name), Source: path, Rule: unknownUser}
		}
		return users, edit(&users[i])
	})
}

// RemoveUser removes a user.
func RemoveUser(path, name string) error {
	return changeUsers(path, func(users []auth.User) ([]auth.User, error) {
		left := slices.DeleteFunc(slices.Clone(users), func(u auth.User) bool { return u.Name == name })
		if len(left) == len(users) {
			return nil, &Error{Key: "name", Value: shown(name), Source: path, Rule: unknownUser}
		}
		return left, nil
	})
}

// target resolves symbolic links, so a change keeps the link.
func target(path string) (string, error) {
	if err := secret.CheckPath(path); err != nil {
		return "", fmt.Errorf("write users: %w", err)
	}
	file, err := filepath.EvalSymlinks(path)
	if err == nil {
		return file, nil
	}
	if _, linkErr := os.Lstat(path); linkErr == nil || !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("write users: %s must be a file or a link to an existing file: %w", path, err)
	}
	return path, nil
}

// changeUsers replaces the file atomically: a member that reads it sees the old or the
// new content. The owner, the group and the group's read permission stay.
func changeUsers(path string, edit func([]auth.User) ([]auth.User, error)) (err error) {
	if path, err = target(path); err != nil {
		return err
	}
	fresh := path + ".new"
	file, err := os.OpenFile(fresh, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %s exists; try again, or remove that file if no other command is running", ErrUsersBusy, fresh)
	}
	if err != nil {
		return fmt.Errorf("write users: %w", err)
	}
	defer func() {
		file.Close()
		if err != nil {
			err = errors.Join(err, os.Remove(fresh))
		}
	}()
	users, err := ReadUsers(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrNoUsers) {
		return err
	}
	if users, err = edit(users); err != nil {
		return err
	}
	if err = keepOwner(path, file); err == nil {
		_, err = file.WriteString(formatUsers(users))
	}
	if err == nil {
		err = Commit(file, path)
	}
	if err != nil {
		return fmt.Errorf("write users: %w", err)
	}
	return nil
}

// formatUsers returns the content of the file.
func formatUsers(users []auth.User) string {
	var b strings.Builder
	b.WriteString(usersHeader)
	if len(users) == 0 {
		b.WriteString("[]\n") // an empty file would be rejected
	}
	for _, u := range users {
		fmt.Fprintf(&b, "- name: %q\n", u.Name)
		if u.Certificate != "" {
			fmt.Fprintf(&b, "  certificate: %q\n", u.Certificate)
		}
		if len(u.Hashes) > 0 {
			b.WriteString("  hashes: # of the secrets, oldest first\n")
		}
		for _, hash := range u.Hashes {
			fmt.Fprintf(&b, "    - %s%s\n", hashPrefix, hex.EncodeToString(hash[:]))
		}
		if u.Member {
			b.WriteString("  member: true\n")
		}
		if len(u.Rules) > 0 {
			b.WriteString("  allow:\n")
		}
		for _, rule := range u.Rules {
			fmt.Fprintf(&b, "    - %q\n", rule)
		}
	}
	return b.String()
}
