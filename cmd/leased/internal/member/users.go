package member

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/audit"
	"github.com/leased-project/leased/internal/server/auth"
)

// credentials are the users that may call this member, and the secret with which it
// calls the others. Both files can be reloaded; a reload cannot add or remove the
// users file itself.
type credentials struct {
	usersFile, secretFile string
	users                 *auth.Users // nil without a users file
	own                   atomic.Pointer[string]
	listed                []auth.User // the content of the users file
}

// credentialFiles is the content of the files.
type credentialFiles struct {
	users []auth.User
	own   string
}

func newCredentials(s *settings.Settings, logger *slog.Logger) (*credentials, error) {
	c := &credentials{usersFile: s.Users, secretFile: s.SecretFile}
	read, err := c.read()
	if err != nil {
		return nil, err
	}
	if c.usersFile != "" {
		c.users = auth.NewUsers(nil)
	}
	c.replace(read)
	c.report(logger)
	return c, nil
}

// report logs the number of users: an empty list is rarely intended.
func (c *credentials) report(logger *slog.Logger) {
	switch n := len(c.listed); {
	case c.users == nil:
	case n == 0:
		logger.Warn("the users file is empty: all calls are rejected", "file", c.usersFile)
	default:
		logger.Info("loaded the users", "file", c.usersFile, "users", n)
	}
}

// read reads the files. All members have the same users, so the secret of this
// member must belong to one of its own users.
func (c *credentials) read() (read credentialFiles, err error) {
	if c.secretFile != "" {
		if read.own, err = secret.ReadFile(c.secretFile); err != nil {
			return read, fmt.Errorf("secret-file: %w", err)
		}
	}
	if c.usersFile == "" {
		return read, nil
	}
	if read.users, err = settings.ReadUsers(c.usersFile); err != nil {
		return read, fmt.Errorf("users: %w", err)
	}
	if read.own == "" {
		return read, nil
	}
	own := slices.IndexFunc(read.users, func(u auth.User) bool {
		return slices.Contains(u.Hashes, secret.HashOf(read.own))
	})
	switch {
	case own < 0:
		return read, fmt.Errorf("secret-file (%s) must contain the secret of a user in users (%s): the other members "+
			"accept no other", c.secretFile, c.usersFile)
	case !read.users[own].Member:
		return read, fmt.Errorf("secret-file (%s) contains the secret of user %s, who is not a member in users (%s); "+
			"create an account for the members with `leased user add --member`, and give the file with its secret",
			c.secretFile, read.users[own].Name, c.usersFile)
	}
	return read, nil
}

// replace puts the content of the files into effect.
func (c *credentials) replace(read credentialFiles) {
	c.own.Store(&read.own)
	c.listed = read.users
	if c.users != nil {
		c.users.Replace(read.users)
	}
}

// secret returns the secret with which this member calls the others.
func (c *credentials) secret() string { return *c.own.Load() }

// userMessages are the log messages for changes of users.
var userMessages = map[audit.Event]string{audit.UserAdd: "user added", audit.UserChange: "user changed",
	audit.UserRemove: "user removed"}

// userChanges returns a record for each user that differs between two lists.
func userChanges(before, after []auth.User) (changes []audit.Record) {
	index := func(list []auth.User, name string) int {
		return slices.IndexFunc(list, func(u auth.User) bool { return u.Name == name })
	}
	for _, user := range after {
		i := index(before, user.Name)
		switch {
		case i < 0:
			changes = append(changes, audit.Record{Event: audit.UserAdd, Subject: user.Name, Detail: describeUser(user)})
		case !reflect.DeepEqual(before[i], user):
			detail := describeUser(user)
			if !slices.Equal(before[i].Hashes, user.Hashes) || before[i].Certificate != user.Certificate {
				detail = strings.TrimPrefix(detail+", secrets or certificate changed", ", ")
			}
			changes = append(changes, audit.Record{Event: audit.UserChange, Subject: user.Name, Detail: detail})
		}
	}
	for _, user := range before {
		if index(after, user.Name) < 0 {
			changes = append(changes, audit.Record{Event: audit.UserRemove, Subject: user.Name})
		}
	}
	return changes
}

// describeUser returns the rights of a user.
func describeUser(user auth.User) string {
	var parts []string
	if user.Member {
		parts = append(parts, "member account")
	}
	for _, rule := range user.Rules {
		parts = append(parts, rule.String())
	}
	return strings.Join(parts, ", ")
}
