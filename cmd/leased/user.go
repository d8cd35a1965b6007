package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/lease/engine"
)

// addUsers adds the flag with the path of the file.
func addUsers(c *cobra.Command) *string {
	path := c.Flags().String("users", "", "file with the users, the same as for leased serve (LEASED_USERS)")
	check := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		*path = cmp.Or(*path, os.Getenv("LEASED_USERS")) // not a default of the flag: --help would print it
		if *path == "" {
			return usageError(fmt.Errorf("--users is required: the file with the users, such as /etc/leased/users.yaml"))
		}
		if check != nil {
			return check(c, args)
		}
		return nil
	}
	return path
}

func setUpUserAdd(c *cobra.Command) {
	c.Args = exactly(1, "the name of a user")
	path := addUsers(c)
	allow := c.Flags().StringArray("allow", nil,
		"rule that the user gets, such as acquire:jobs/*; repeat the flag for more")
	admin := c.Flags().Bool("admin", false, "all rights on everything")
	member := c.Flags().Bool("member", false, "the members of the cluster call each other as this user; it needs no rules")
	certificate := c.Flags().String("certificate", "", "subject common name of the client certificate that identifies "+
		"the user, instead of a secret (needs tls-clients)")
	c.RunE = func(c *cobra.Command, args []string) error {
		rules, err := parseRules(*allow)
		switch {
		case err != nil:
			return usageError(err)
		case c.Flags().Changed("certificate") && *certificate == "":
			return usageError(errors.New("--certificate is empty; give the subject common name of a client certificate, or " +
				"omit the flag for a user with a secret"))
		case *member && (*admin || len(rules) > 0):
			return usageError(errors.New("--member cannot be combined with --admin and --allow: the secret of a member lies " +
				"on every host; add another user for operators"))
		}
		if *admin {
			rules = append(auth.AdminRules(), rules...)
		}
		user := auth.User{Name: args[0], Member: *member, Certificate: *certificate, Rules: rules}
		text, err := settings.AddUser(*path, user)
		if err != nil {
			return usageError(err)
		}
		if len(rules) == 0 && !*member {
			fmt.Fprintf(c.ErrOrStderr(), "%s has no rights; grant them with `leased user allow`\n", args[0])
		}
		if text == "" {
			return say(c, "added %s, identified by the client certificate of %s; send SIGHUP to the members", args[0],
				*certificate)
		}
		fmt.Fprintf(c.ErrOrStderr(), "added %s; keep the secret below, it is not shown again. Send SIGHUP to the members.\n",
			args[0])
		return say(c, "%s", text)
	}
}

func parseRules(texts []string) (rules auth.Rules, err error) {
	for _, text := range texts {
		rule, err := auth.ParseRule(text)
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

func setUpUserAllow(c *cobra.Command) { changeRules(c, settings.AllowUser) }

func setUpUserDeny(c *cobra.Command) { changeRules(c, settings.DenyUser) }

// changeRules sets up a command that changes the rules of a user.
func changeRules(c *cobra.Command, change func(path, name string, rules auth.Rules) error) {
	c.Args = atLeast(2, "the name of a user and a rule")
	changeUsers(c, func(path string, args []string) (string, error) {
		rules, err := parseRules(args[1:])
		if err != nil {
			return "", err
		}
		return "changed " + args[0], change(path, args[0], rules)
	})
}

// changeUsers sets up a command that changes the users file. change returns what it has done.
func changeUsers(c *cobra.Command, change func(path string, args []string) (done string, err error)) {
	path := addUsers(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		done, err := change(*path, args)
		if err != nil {
			return usageError(err)
		}
		return say(c, "%s; send SIGHUP to the members", done)
	}
}

func setUpUserCheck(c *cobra.Command) {
	c.Args = cobra.MatchAll(atLeast(2, "the name of a user, a right, and a lock unless the right is cluster or metrics"),
		between(2, 3, "one lock"))
	path := addUsers(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		asked, err := auth.ParseRule(strings.Join(args[1:], ":"))
		if err != nil {
			return usageError(err)
		}
		users, err := settings.ReadUsers(*path)
		if err != nil {
			return usageError(err)
		}
		i := slices.IndexFunc(users, func(u auth.User) bool { return u.Name == args[0] })
		if i < 0 {
			return usageError(fmt.Errorf("there is no user %q in %s; `leased user list` shows the users", args[0], *path))
		}
		rule, ok := users[i].Rules.Find(asked.Right, asked.Pattern)
		if prefix, isPrefix := strings.CutSuffix(asked.Pattern, "*"); isPrefix {
			rule, ok = users[i].Rules.FindPrefix(asked.Right, prefix)
		}
		if !ok {
			return fmt.Errorf("%w: user %s has no rule that allows %s; grant it with `leased user allow %s '%s'`",
				engine.ErrForbidden, args[0], asked, args[0], asked)
		}
		return say(c, "allowed by %s", rule)
	}
}

// listedUser is a user in the JSON output of list.
type listedUser struct {
	Name        string   `json:"name"`
	Member      bool     `json:"member,omitempty"`
	Certificate string   `json:"certificate,omitempty"`
	Secrets     []string `json:"secrets"` // their ids, oldest first
	Allow       []string `json:"allow"`
}

func setUpUserList(c *cobra.Command) {
	path, o := addUsers(c), addOutput(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		users, err := settings.ReadUsers(*path)
		if err != nil {
			return usageError(err)
		}
		list := []listedUser{}
		for _, u := range users {
			entry := listedUser{u.Name, u.Member, u.Certificate, []string{}, []string{}}
			for _, hash := range u.Hashes {
				entry.Secrets = append(entry.Secrets, settings.SecretID(hash))
			}
			for _, rule := range u.Rules {
				entry.Allow = append(entry.Allow, rule.String())
			}
			list = append(list, entry)
		}
		if o.format == "json" {
			return printJSON(c.OutOrStdout(), map[string]any{"users": list}, "")
		}
		for _, u := range list {
			text := u.Name
			if u.Member {
				text += " (member)"
			}
			if u.Certificate != "" {
				text += fmt.Sprintf(" (certificate %q)", u.Certificate)
			}
			if len(u.Secrets) > 0 {
				text += fmt.Sprintf(" (secrets %s)", strings.Join(u.Secrets, ", "))
			}
			if len(u.Allow) > 0 {
				text += ": " + strings.Join(u.Allow, ", ")
			}
			if err := say(c, "%s", text); err != nil {
				return err
			}
		}
		return nil
	}
}

func setUpUserRemove(c *cobra.Command) {
	c.Args = exactly(1, "the name of a user")
	changeUsers(c, func(path string, args []string) (string, error) {
		return "removed " + args[0], settings.RemoveUser(path, args[0])
	})
}

func setUpUserSecretAdd(c *cobra.Command) {
	c.Args = exactly(1, "the name of a user")
	path := addUsers(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		text, err := settings.AddSecret(*path, args[0])
		if err != nil {
			return usageError(err)
		}
		fmt.Fprintf(c.ErrOrStderr(), "added secret %s to %s; keep the secret below, it is not shown again. Send SIGHUP to "+
			"the members.\n", settings.SecretID(secret.HashOf(text)), args[0])
		return say(c, "%s", text)
	}
}

func setUpUserSecretRemove(c *cobra.Command) {
	c.Args = exactly(2, "the name of a user and the id of a secret")
	changeUsers(c, func(path string, args []string) (string, error) {
		return fmt.Sprintf("removed secret %s from %s", args[1], args[0]), settings.RemoveSecret(path, args[0], args[1])
	})
}
