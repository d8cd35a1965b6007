package gateproxy_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/gateproxy"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/servicetest"
	"github.com/leased-project/leased/internal/testserver"
)

func ask(t *testing.T, admin http.Handler, method, target string, change ...func(*http.Request)) (int, string) {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	r.Host = "127.0.0.1:9901"
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	admin.ServeHTTP(w, r)
	body, err := io.ReadAll(w.Result().Body)
	require.NoError(t, err)
	return w.Code, string(body)
}

func TestAdminListsAndReopens(t *testing.T) {
	upstream := newControlled()
	g := newFixture(t, upstream, func(c *gateproxy.Config) {
		c.Now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC) }
	})
	admin := g.proxy.Admin()
	upstream.respond <- breakConnection
	require.Error(t, g.Write(t.Context(), orders, 5, "old"))
	code, body := ask(t, admin, "GET", "/flights")
	require.Equal(t, 200, code)
	var flights []gateproxy.Flight
	require.NoError(t, json.Unmarshal([]byte(body), &flights))
	require.Len(t, flights, 1)
	require.Equal(t, "PUT", flights[0].Method)
	require.Equal(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), flights[0].Sent)

	code, body = ask(t, admin, "GET", "/mark?resource=orders/42")
	require.Equal(t, 200, code)
	require.JSONEq(t, `{"resource":"orders/42","mark":5}`, body)
	code, _ = ask(t, admin, "GET", "/mark?resource=")
	require.Equal(t, 400, code)
	code, body = ask(t, admin, "GET", "/counts")
	require.Equal(t, 200, code)
	require.Contains(t, body, `"Admitted":1`)

	code, _ = ask(t, admin, "GET", "/reopen?resource=orders/42")
	require.Equal(t, 405, code)
	code, _ = ask(t, admin, "POST", "/reopen?resource=orders/43")
	require.Equal(t, 404, code)
	code, _ = ask(t, admin, "POST", "/reopen?resource=orders/42")
	require.Equal(t, 204, code)
	require.NoError(t, g.Write(t.Context(), orders, 6, "new"))
}

// Only with abandon can an operator reopen a resource with a request in flight.
func TestAdminAbandons(t *testing.T) {
	upstream := newControlled()
	g := newFixture(t, upstream)
	done := inBackground(func() error { return g.Write(t.Context(), orders, 1, "old") })
	testserver.Receive(t, upstream.arrived)
	code, body := ask(t, g.proxy.Admin(), "POST", "/reopen?resource=orders/42")
	require.Equal(t, 409, code)
	require.Contains(t, body, "abandon")
	code, _ = ask(t, g.proxy.Admin(), "POST", "/reopen?resource=orders/42&abandon=true")
	require.Equal(t, 204, code)
	require.Error(t, testserver.Receive(t, done))
	require.NoError(t, g.Write(t.Context(), orders, 2, "new"))
	upstream.respond <- respondOK
}

func TestAdminRefusesOtherHosts(t *testing.T) {
	admin := newFixture(t, http.NotFoundHandler()).proxy.Admin()
	for host, want := range map[string]int{"localhost": 200, "127.0.0.1:9901": 200, "[::1]:9901": 200, "evil.example": 421,
		"10.0.0.1": 421} {
		code, _ := ask(t, admin, "GET", "/flights", func(r *http.Request) { r.Host = host })
		require.Equal(t, want, code, host)
	}
	code, _ := ask(t, admin, "POST", "/reopen?resource=x", func(r *http.Request) {
		r.Header.Set("Origin", "https://evil.example")
	})
	require.Equal(t, 403, code)
}

func TestAdminResets(t *testing.T) {
	g := newFixture(t, &servicetest.Store{})
	admin := g.proxy.Admin()
	const absurd = fencing.DefaultMaxJump
	require.NoError(t, g.Write(t.Context(), orders, absurd, "absurd"))
	for query, want := range map[string]int{
		"resource=orders/42&expected=50&to=49":                                      409,
		"resource=orders/42&expected=" + absurd.String() + "&to=" + absurd.String(): 409,
		"resource=orders/42&expected=" + absurd.String() + "&to=x":                  400,
		"resource=orders/42&to=52":                                                  400,
		"resource=&expected=" + absurd.String() + "&to=52":                          400,
	} {
		code, body := ask(t, admin, "POST", "/reset?"+query)
		require.Equal(t, want, code, "%s: %s", query, body)
	}
	require.ErrorIs(t, g.Write(t.Context(), orders, 51, "locked out"), fencing.ErrStale, "a refused reset changes nothing")
	code, _ := ask(t, admin, "GET", "/reset?resource=orders/42&expected="+absurd.String()+"&to=52")
	require.Equal(t, 405, code)
	code, body := ask(t, admin, "POST", "/reset?resource=orders/42&expected="+absurd.String()+"&to=52")
	require.Equal(t, 204, code, body)
	require.ErrorIs(t, g.Write(t.Context(), orders, 51, "stale"), fencing.ErrStale)
	require.NoError(t, g.Write(t.Context(), orders, 52, "new"))
}
