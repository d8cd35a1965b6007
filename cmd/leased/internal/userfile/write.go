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

	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/lease/remote/secret"
)

const head = "# Who may call the API. Change it with `leased user`, then send SIGHUP to the servers.\n" +
	"# The secrets are not here: only those who were given one have it.\n"

// Add adds a user, who may be a member, and returns its secret. A file that does
// not exist is made.
func Add(path, name string, member bool) (text string, err error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	text = secret.New()
	err = change(path, func(users []server.User) ([]server.User, error) {
		if slices.ContainsFunc(users, func(u server.User) bool { return u.Name == name }) {
			return nil, &Error{Key: "name", Value: name, Source: path, Rule: "must be new: there is such a user; remove it first, or add one with another name"}
		}
		return append(users, server.User{Name: name, Hash: secret.HashOf(text), Member: member}), nil
	})
	if err != nil {
		return "", err
	}
	return text, nil
}

// Remove removes a user.
func Remove(path, name string) error {
	return change(path, func(users []server.User) ([]server.User, error) {
		left := slices.DeleteFunc(slices.Clone(users), func(u server.User) bool { return u.Name == name })
		if len(left) == len(users) {
			return nil, &Error{Key: "name", Value: shown(name), Source: path, Rule: "must be that of a user; `leased user list` shows them"}
		}
		return left, nil
	})
}

// target is the file itself, where path may be a link to it: the link stays.
func target(path string) (string, error) {
	if err := secret.CheckPath(path); err != nil {
		return "", fmt.Errorf("write users: %w", err)
	}
	file, err := filepath.EvalSymlinks(path)
	if err == nil {
		return file, nil
	}
	if _, linkErr := os.Lstat(path); linkErr == nil || !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("write users: %s must be a file, or a link to one that exists: %w", path, err)
	}
	return path, nil
}

// change replaces the file by another one, at once: a server that reads it
// meanwhile sees the old one or the new one. Its owner and group stay, and whether
// the group may read it.
func change(path string, edit func([]server.User) ([]server.User, error)) (err error) {
	if path, err = target(path); err != nil {
		return err
	}
	fresh := path + ".new"
	file, err := os.OpenFile(fresh, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %s exists; try again, or remove it if nobody else is changing users", ErrBusy, fresh)
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

// format is the text of the file.
func format(users []server.User) string {
	var b strings.Builder
	b.WriteString(head)
	if len(users) == 0 {
		b.WriteString("[]\n") // on purpose: an empty file is refused
	}
	for _, u := range users {
		fmt.Fprintf(&b, "- name: %q\n  hash: %s%s\n", u.Name, kind, hex.EncodeToString(u.Hash[:]))
		if u.Member {
			b.WriteString("  member: true\n")
		}
	}
	return b.String()
}
