package member

import (
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/cmd/leased/internal/userfile"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/lease/remote/secret"
)

// callers are who may call this member, and as whom it calls the others. Both
// files can be reloaded; whether there are users at all cannot.
type callers struct {
	usersFile, secretFile string
	users                 *server.Users // nil without any
	own                   atomic.Pointer[string]
}

// calling is what the files said.
type calling struct {
	users []server.User
	own   string
}

func newCallers(s *settings.Settings, logger *slog.Logger) (*callers, error) {
	c := &callers{usersFile: s.Users, secretFile: s.SecretFile}
	read, err := c.read()
	if err != nil {
		return nil, err
	}
	if c.usersFile != "" {
		c.users = server.NewUsers(read.users)
	}
	c.own.Store(&read.own)
	c.report(logger, len(read.users))
	return c, nil
}

// report tells how many users there are: none at all is seldom meant.
func (c *callers) report(logger *slog.Logger, n int) {
	switch {
	case c.users == nil:
	case n == 0:
		logger.Warn("there are no users: nobody is let in", "file", c.usersFile)
	default:
		logger.Info("read the users", "file", c.usersFile, "users", n)
	}
}

// read reads the files. A member that its own users would not let in is not let
// in by the others either, since all have the same users.
func (c *callers) read() (read calling, err error) {
	if c.secretFile != "" {
		if read.own, err = secret.ReadFile(c.secretFile); err != nil {
			return read, fmt.Errorf("secret-file: %w", err)
		}
	}
	if c.usersFile == "" {
		return read, nil
	}
	if read.users, err = userfile.Read(c.usersFile); err != nil {
		return read, fmt.Errorf("users: %w", err)
	}
	if read.own == "" {
		return read, nil
	}
	own := slices.IndexFunc(read.users, func(u server.User) bool { return u.Hash == secret.HashOf(read.own) })
	switch {
	case own < 0:
		return read, fmt.Errorf("secret-file (%s) must have the secret of a user in users (%s): all members have the same users, and let in no other",
			c.secretFile, c.usersFile)
	case !read.users[own].Member:
		return read, fmt.Errorf("secret-file (%s) must have the secret of a member: add `member: true` to user %s in users (%s) of all members, "+
			"or make one with `leased user add --member`", c.secretFile, read.users[own].Name, c.usersFile)
	}
	return read, nil
}

// take makes what was read count.
func (c *callers) take(read calling) {
	c.own.Store(&read.own)
	if c.users != nil {
		c.users.Replace(read.users)
	}
}

// secret is what this member shows to others now.
func (c *callers) secret() string { return *c.own.Load() }
