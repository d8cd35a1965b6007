package member

import (
	"reflect"
	"slices"
	"strings"

	"github.com/leased-project/leased/internal/server/audit"
	"github.com/leased-project/leased/internal/server/auth"
)

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
