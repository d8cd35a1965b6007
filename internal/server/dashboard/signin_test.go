package dashboard_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/server/auth"
)

// newUser returns a user with rules such as "read:jobs/*", and its secret.
func newUser(t *testing.T, name string, rules ...string) (auth.User, string) {
	t.Helper()
	text := secret.New()
	user := auth.User{Name: name, Hashes: []secret.Hash{secret.HashOf(text)}}
	for _, rule := range rules {
		parsed, err := auth.ParseRule(rule)
		require.NoError(t, err)
		user.Rules = append(user.Rules, parsed)
	}
	return user, text
}

// A service with users asks for a secret, shows what the user may see, and asks again when
// the user is removed. The secret is in no URL.
func TestSignIn(t *testing.T) {
	t.Parallel()
	admin, adminSecret := newUser(t, "admin", "acquire:*", "read:*", "break:*", "cluster", "policy:*")
	reader, readerSecret := newUser(t, "reader", "read:jobs/*")
	users := auth.NewUsers([]auth.User{admin, reader})
	m := startMember(t, "n1", "", func(c *server.Config) { c.Users = users })
	for _, lock := range []string{"jobs/1", "payroll/1"} {
		m.post(t, "acquire", adminSecret, map[string]any{"resource": lock, "holder": "worker", "ttl": "1h"})
	}

	p := open(t, m, "#/")
	p.shows(".sign-in", "Sign in")
	require.Equal(t, "password off",
		value[string](p, `((input) => input.type + " " + input.autocomplete)(document.querySelector("#secret"))`),
		"no browser offers to store it")
	p.enter("#secret", secret.New()+"\r")
	p.until(`document.querySelector("#sign-in-message").innerText.length > 10`)
	message := value[string](p, `document.querySelector("#sign-in-message").innerText`)
	require.Equal(t, "The service does not know this secret.", message)

	p.enter("#secret", readerSecret+"\r")
	p.shows("#account", "reader")
	p.untilRows("jobs/1")
	p.click("td.name a")
	p.shows(".holder .big", "worker")
	require.True(t, value[bool](p, `document.querySelector(".holder .danger").hidden`), "a reader cannot break")
	require.True(t, value[bool](p, `document.querySelector(".facts .token").hidden`), "a reader sees no token of others")
	value[bool](p, `(location.hash = "#/lock/payroll%2F1", true)`)
	p.shows("#banner", "payroll/1")
	p.shows(".lock .free", "Not available")
	p.shows("#connection", "no access")
	p.shows("#account", "reader")
	p.lacks("worker")
	p.lacks("Nobody waits")
	value[bool](p, `(location.hash = "#/cluster", true)`)
	p.shows("#banner", "lacks the right cluster")
	value[bool](p, `(location.hash = "#/", true)`)
	p.untilRows("jobs/1")
	p.shows("#connection", "live")
	p.until(`document.querySelector("#banner").hidden`)

	for _, request := range value[[]string](p, `performance.getEntriesByType("resource").map((entry) => entry.name)`) {
		require.NotContains(t, request, readerSecret)
	}
	require.NotContains(t, value[string](p, "location.href + document.cookie + JSON.stringify(localStorage)"),
		readerSecret)

	users.Replace([]auth.User{admin}) // the reader is revoked
	p.shows(".sign-in", "Sign in")
	p.until(`document.querySelector("#sign-in-message").innerText.length > 10`)
	p.lacks("worker")

	p.enter("#secret", adminSecret+"\r")
	p.shows("#account", "admin")
	value[bool](p, `(location.hash = "#/lock/payroll%2F1", true)`)
	p.until(`document.querySelector(".holder .danger") && !document.querySelector(".holder .danger").hidden`)
	p.click("#sign-out")
	p.shows(".sign-in", "Sign in")
	require.Equal(t, 0, value[int](p, "sessionStorage.length"))
	for _, line := range p.console() {
		require.True(t, strings.Contains(line, "401") || strings.Contains(line, "403"),
			"only refused requests are in the console: %s", line)
		require.NotContains(t, line, readerSecret)
	}
}
