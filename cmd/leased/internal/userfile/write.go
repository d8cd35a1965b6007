package userfile

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/lease/remote/secret"
)

const header = "# Users of the API. Change this file with `leased user`, then send SIGHUP to the members.\n" +
	"# It contains hashes of the secrets, not the secrets.\n"

// Add adds a user and returns its secret. It creates the file if it does not exist.
// member marks the user with which the members call each other.
func Add(path, name string, member bool) (text string, err error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	text = secret.New()
	err = change(path, func(users []auth.User) ([]auth.User, error) {
		if slices.ContainsFunc(users, func(u auth.User) bool { return u.Name == name }) {
			return nil, &settings.Error{Key: "name", Value: name, Source: path, Rule: "already exists; remove the user first, or choose another name"}
		}
		return append(users, auth.User{Name: name, Hash: secret.HashOf(text), Member: member}), nil
	})
	if err != nil {
		return "", err
	}
	return text, nil
}

// Remove removes a user.
func Remove(path, name string) error {
	return change(path, func(users []auth.User) ([]auth.User, error) {
		left := slices.DeleteFunc(slices.Clone(users), func(u auth.User) bool { return u.Name == name })
		if len(left) == len(users) {
			return nil, &settings.Error{Key: "name", Value: shown(name), Source: path, Rule: "does not exist; `leased user list` shows the users"}
		}
		return left, nil
	})
}

// target resolves symbolic links, so that a change keeps the link.
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

// change replaces the file atomically: a member that reads it sees the old or the
// new content. The owner, the group and the group's read permission stay.
func change(path string, edit func([]auth.User) ([]auth.User, error)) (err error) {
	if path, err = target(path); err != nil {
		return err
	}
	fresh := path + ".new"
	file, err := os.OpenFile(fresh, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %s exists; try again, or remove that file if no other command is running", ErrBusy, fresh)
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
	users, err := Read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrEmpty) {
		return err
	}
	if users, err = edit(users); err != nil {
		return err
	}
	if err := keepOwner(path, file); err != nil {
		return fmt.Errorf("write users: %w", err)
	}
	if _, err := file.WriteString(format(users)); err != nil {
		return fmt.Errorf("write users: %w", err)
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("write users: %w", err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("write users: %w", err)
	}
	return syncFolder(filepath.Dir(path))
}

// format returns the content of the file.
func format(users []auth.User) string {
	var b strings.Builder
	b.WriteString(header)
	if len(users) == 0 {
		b.WriteString("[]\n") // an empty file would be rejected
	}
	for _, u := range users {
		fmt.Fprintf(&b, "- name: %q\n  hash: %s%s\n", u.Name, hashPrefix, hex.EncodeToString(u.Hash[:]))
		if u.Member {
			b.WriteString("  member: true\n")
		}
	}
	return b.String()
}
