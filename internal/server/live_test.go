package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// live is a stream of the dashboard.
type live struct {
	t      testing.TB
	body   io.ReadCloser
	events *bufio.Reader
}

// getAs makes a GET request, with a secret unless it is empty.
func getAs(t testing.TB, address, path, text string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(testContext(t), http.MethodGet, "http://"+address+path, nil)
	require.NoError(t, err)
	header := ""
	if text != "" {
		header = secret.Header(text)
	}
	return send(t, request, header)
}

// openLive opens a stream, such as "view=locks".
func openLive(t testing.TB, address, query, text string) *live {
	t.Helper()
	response := getAs(t, address, "/ui/live?"+query, text)
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, "text/event-stream; charset=utf-8", response.Header.Get("Content-Type"))
	return &live{t, response.Body, bufio.NewReader(response.Body)}
}

// read returns the next event, or an error if the stream has ended.
func (l *live) read() (event string, data map[string]any, err error) {
	for {
		line, err := l.events.ReadString('\n')
		if err != nil {
			return "", nil, err
		}
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch name {
		case "event":
			event = value
		case "data":
			return event, data, json.Unmarshal([]byte(value), &data)
		}
	}
}

// next waits for an event of a kind.
func (l *live) next(kind string) map[string]any {
	l.t.Helper()
	for {
		event, data, err := l.read()
		require.NoError(l.t, err)
		if event == kind {
			return data
		}
		require.NotEqual(l.t, "failure", event, "%v", data)
	}
}

// failure waits for a failure event and returns its code.
func (l *live) failure() string {
	l.t.Helper()
	for {
		event, data, err := l.read()
		require.NoError(l.t, err)
		if event == "failure" {
			return fmt.Sprint(data["code"])
		}
		require.Equal(l.t, "summary", event, "%v", data)
	}
}

// The page needs no secret, and may load nothing but its own files. Its data needs one.
func TestDashboardFiles(t *testing.T) {
	t.Parallel()
	alice, _ := newUser(t, "alice", "read:*")
	s, _ := startWithUsers(t, alice)
	for path, kind := range map[string]string{"/": "text/html; charset=utf-8",
		"/ui/index.html": "text/html; charset=utf-8",
		"/ui/app.js":     "text/javascript; charset=utf-8", "/ui/style.css": "text/css; charset=utf-8",
		"/ui/icon.svg": "image/svg+xml"} {
		response := getAs(t, s.Address(), path, "")
		require.Equal(t, http.StatusOK, response.StatusCode, path)
		require.Equal(t, kind, response.Header.Get("Content-Type"), path)
		policy := response.Header.Get("Content-Security-Policy")
		for _, rule := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'",
			"form-action 'none'"} {
			require.Contains(t, policy, rule)
		}
		require.NotContains(t, policy, "unsafe")
		require.Equal(t, "nosniff", response.Header.Get("X-Content-Type-Options"))
		require.Equal(t, "no-referrer", response.Header.Get("Referrer-Policy"))
		require.Equal(t, "no-cache", response.Header.Get("Cache-Control"))

		again, err := http.NewRequestWithContext(testContext(t), http.MethodGet, "http://"+s.Address()+path, nil)
		require.NoError(t, err)
		again.Header.Set("If-None-Match", response.Header.Get("ETag"))
		require.Equal(t, http.StatusNotModified, send(t, again, "").StatusCode)
	}
	require.Equal(t, http.StatusUnauthorized, getAs(t, s.Address(), "/ui/none.js", "").StatusCode,
		"unknown paths need a user")
	require.Equal(t, http.StatusUnauthorized, getAs(t, s.Address(), "/ui/../v1/status.js", "").StatusCode)
	for _, path := range []string{"/ui/me", "/ui/live?view=locks", "/ui/live?view=locks&x=.js", "/ui/other"} {
		require.Equal(t, http.StatusUnauthorized, getAs(t, s.Address(), path, "").StatusCode, path)
		require.Equal(t, http.StatusUnauthorized, getAs(t, s.Address(), path, secret.New()).StatusCode, path)
	}
	post := newPost(t, s.Address(), "/", `{}`)
	require.Equal(t, http.StatusMethodNotAllowed, send(t, post, "").StatusCode)
}

func TestMe(t *testing.T) {
	t.Parallel()
	alice, alices := newUser(t, "alice", "read:jobs/*", "break:jobs/7")
	s, _ := startWithUsers(t, alice)
	var me map[string]any
	require.NoError(t, json.NewDecoder(getAs(t, s.Address(), "/ui/me", alices).Body).Decode(&me))
	require.Equal(t, map[string]any{"users": true, "user": "alice", "rights": []any{"read:jobs/*", "break:jobs/7"},
		"member": "n1", "version": "test"}, me)

	open := startServer(t)
	require.NoError(t, json.NewDecoder(getAs(t, open.Address(), "/ui/me", "").Body).Decode(&me))
	require.Equal(t, false, me["users"])
	require.Contains(t, me["rights"], "break:*")

	limited := startLimited(t, func(l *limits.Limits) { l.RequestsPerSecond = 3 })
	eventually(t, "the rate is exhausted", func() bool {
		return getAs(t, limited.Address(), "/ui/me", "").StatusCode == http.StatusTooManyRequests
	})
}

// A user who may read jobs/* sees nothing of other locks in any view, total or history.
func TestLiveObeysRights(t *testing.T) {
	t.Parallel()
	ops, opss := newUser(t, "ops", "acquire:*", "read:*", "break:*", "cluster")
	alice, alices := newUser(t, "alice", "read:jobs/*", "acquire:jobs/*")
	nobody, nobodys := newUser(t, "nobody")
	s, _ := startWithUsers(t, ops, alice, nobody)
	a, ctx := s.Address(), testContext(t)
	for _, name := range []string{"jobs/1", "jobs/2", "secret/1"} {
		code, answer := postAs(t, a, opss, "/v1/acquire", fmt.Sprintf(`{"resource":%q,"ttl":"10m","holder":"worker"}`, name))
		require.Equal(t, http.StatusOK, code, answer)
		code, answer = postAs(t, a, opss, "/v1/report-refusal", fmt.Sprintf(`{"resource":%q,"token":5,"mark":7,"gate":"sql"}`,
			name))
		require.Equal(t, http.StatusOK, code, answer)
	}
	for _, sort := range []string{"name", "queue", "held", "rate", "refused"} {
		locks := openLive(t, a, "view=locks&sort="+sort, alices).next("locks")
		require.NotContains(t, fmt.Sprint(locks), "secret/")
		require.Len(t, locks["locks"], 2)
		require.EqualValues(t, 2, locks["totalLocks"])
		require.EqualValues(t, 2, locks["totalHolders"])
		require.EqualValues(t, 2, locks["refused"])
		require.Contains(t, fmt.Sprint(locks), "since:")
		require.NotContains(t, fmt.Sprint(locks), "token:", "the leases of others show no token")
		require.NotContains(t, fmt.Sprint(locks), "sessionId:")
		all := openLive(t, a, "view=locks&sort="+sort, opss).next("locks")
		require.EqualValues(t, 3, all["totalLocks"])
		require.EqualValues(t, 3, all["refused"])
		require.Contains(t, fmt.Sprint(all), "token:")
	}
	for _, sort := range []string{"name", "queue", "held", "rate", "refused"} {
		eventually(t, "the operator sees more grants", func() bool { // a rate falls to zero within seconds
			code, granted := postAs(t, a, opss, "/v1/acquire", `{"resource":"secret/2","ttl":"10m"}`)
			require.Equal(t, http.StatusOK, code, granted)
			rate := func(text string) float64 {
				return openLive(t, a, "view=locks&sort="+sort, text).next("locks")["grantsPerSecond"].(float64)
			}
			hers := rate(alices)
			more := rate(opss) > hers
			code, answer := postAs(t, a, opss, "/v1/release", leaseName(granted))
			require.Equal(t, http.StatusOK, code, answer)
			return more
		})
	}
	require.Empty(t, openLive(t, a, "view=locks&search=secret", alices).next("locks")["locks"])
	eventually(t, "the released lock is gone", func() bool {
		return len(openLive(t, a, "view=locks&search=secret", opss).next("locks")["locks"].([]any)) == 1
	})
	lock := openLive(t, a, "view=lock&resource=jobs/1", alices).next("lock")
	require.Equal(t, false, lock["mayBreak"])
	require.Contains(t, fmt.Sprint(lock["history"]), "type:refused")
	for _, hidden := range []string{"token:", "sessionId:", "nonce:", "mark:"} {
		require.NotContains(t, fmt.Sprint(lock), hidden)
	}
	shown := openLive(t, a, "view=lock&resource=jobs/1", opss).next("lock")
	require.Equal(t, true, shown["mayBreak"])
	require.Contains(t, fmt.Sprint(shown), "mark:7")
	for query, text := range map[string]string{"view=lock&resource=secret/1": alices, "view=cluster": alices,
		"view=lock&resource=jobs/1": nobodys, "view=locks": nobodys, "view=policies": nobodys} {
		response := getAs(t, a, "/ui/live?"+query, text)
		require.Equal(t, http.StatusForbidden, response.StatusCode, query)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Contains(t, string(body), `"code":"forbidden"`, query)
		require.NotContains(t, string(body), "summary", query)
	}
	openLive(t, a, "view=policies", alices).next("policies")
	members := openLive(t, a, "view=cluster", opss).next("cluster")["cluster"]
	require.Contains(t, fmt.Sprint(members), "chainHash:")

	asAlice := pb.NewLeaseServiceClient(dialAs(t, a, alices))
	_, err := asAlice.History(ctx, &pb.HistoryRequest{Resource: "secret/1"})
	require.ErrorIs(t, wire.FromStatus(err), engine.ErrForbidden)
	_, err = asAlice.ReportRefusal(ctx, &pb.ReportRefusalRequest{Resource: "secret/1", Gate: "sql"})
	require.ErrorIs(t, wire.FromStatus(err), engine.ErrForbidden)
	overview, err := asAlice.Overview(ctx, &pb.OverviewRequest{Local: true})
	require.NoError(t, err)
	first, err := overview.Recv()
	require.NoError(t, err)
	require.EqualValues(t, 2, first.TotalLocks)
}

// A stream ends when the secret of its user is removed, and says why.
func TestLiveEndsWithItsSecret(t *testing.T) {
	t.Parallel()
	alice, alices := newUser(t, "alice", "read:*")
	bob, bobs := newUser(t, "bob", "read:*")
	s, users := startWithUsers(t, alice, bob)
	removed, kept := openLive(t, s.Address(), "view=locks", alices), openLive(t, s.Address(), "view=locks", bobs)
	removed.next("locks")
	users.Replace([]auth.User{bob})
	for {
		event, data, err := removed.read()
		require.NoError(t, err)
		if event == "failure" {
			require.Contains(t, data["message"], "user alice was removed")
			break
		}
	}
	_, err := io.ReadAll(removed.events)
	require.NoError(t, err, "the stream ends")
	require.Equal(t, http.StatusUnauthorized, getAs(t, s.Address(), "/ui/live?view=locks", alices).StatusCode)
	kept.next("locks")
}

// Streams count against the limit of their user until the browser is gone, also one that
// does not read.
func TestLiveIsLimited(t *testing.T) {
	t.Parallel()
	// The stream of a client that does not read must outlive the requests after it.
	s := startLimited(t, func(l *limits.Limits) { l.SendTimeout, l.StreamsPerUser = 5*slowTimeout, 1 })
	for i := range 60 { // an event is larger than the buffers of a connection
		mustPost(t, s.Address(), "/v1/acquire", fmt.Sprintf(`{"resource":"large/%d","ttl":"10m","metadata":{"k":"%s"}}`, i,
			strings.Repeat("x", 4000)))
	}
	free := func() bool {
		response := getAs(t, s.Address(), "/ui/live?view=policies", "")
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	}
	for _, query := range []string{"view=locks", "view=lock&resource=large/1", "view=cluster", "view=policies"} {
		var gone *live
		eventually(t, "the former stream has ended", func() bool {
			response := getAs(t, s.Address(), "/ui/live?"+query, "")
			gone = &live{t, response.Body, bufio.NewReader(response.Body)}
			return response.StatusCode == http.StatusOK
		})
		gone.next("summary")
		require.Equal(t, http.StatusTooManyRequests, getAs(t, s.Address(), "/ui/live?"+query, "").StatusCode)
		gone.body.Close()
	}
	eventually(t, "the last stream has ended", free)
	var slow net.Conn
	eventually(t, "the slow client is admitted", func() bool {
		var err error
		slow, err = net.Dial("tcp", s.Address())
		require.NoError(t, err)
		require.NoError(t, slow.(*net.TCPConn).SetReadBuffer(4096))
		_, err = fmt.Fprintf(slow, "GET /ui/live?view=locks&limit=500 HTTP/1.1\r\nHost: %s\r\n\r\n", s.Address())
		require.NoError(t, err)
		status, err := bufio.NewReaderSize(slow, 16).ReadString('\n')
		require.NoError(t, err)
		return strings.Contains(status, "200")
	})
	defer slow.Close()
	require.False(t, free())
	eventually(t, "the stream of the client that does not read has ended", free)
}

// Any name that a lock can have comes through, and one that it cannot have is an error.
func TestLiveLockNames(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for _, name := range []string{
		`a"b'c<script>&amp;`, `back\slash`, "ünï/日本/🔒", "a b?x=1&y=%2F#z", strings.Repeat("x", 512),
	} {
		body, err := json.Marshal(map[string]string{"resource": name, "ttl": "10m"})
		require.NoError(t, err)
		mustPost(t, s.Address(), "/v1/acquire", string(body))
		view := openLive(t, s.Address(), "view=lock&resource="+url.QueryEscape(name), "")
		lock := view.next("lock")["lock"].(map[string]any)
		require.Equal(t, name, lock["resource"])
		require.Len(t, lock["holders"], 1)
		list := openLive(t, s.Address(), "view=locks&search="+url.QueryEscape(name), "")
		locks, _ := list.next("locks")["locks"].([]any)
		for len(locks) == 0 { // until the next scan
			locks, _ = list.next("locks")["locks"].([]any)
		}
		require.Equal(t, name, locks[0].(map[string]any)["lock"].(map[string]any)["resource"])
	}
	for _, name := range []string{"new\nline", "", strings.Repeat("x", 1024), "\xff"} {
		stream := openLive(t, s.Address(), "view=lock&resource="+url.QueryEscape(name), "")
		require.Equal(t, "invalid-resource", stream.failure(), "%q", name)
	}
	require.Equal(t, http.StatusBadRequest, getAs(t, s.Address(), "/ui/live?view=none", "").StatusCode)
	require.Equal(t, http.StatusBadRequest, getAs(t, s.Address(), "/ui/live?view=locks&limit=x", "").StatusCode)
	require.Equal(t, "invalid", openLive(t, s.Address(), "view=locks&limit=501", "").failure())
	require.Equal(t, "invalid", openLive(t, s.Address(), "view=locks&sort=age", "").failure())
}

// After a failover the next leader has the history of a lock and knows since when it is
// held. Without a leader a member shows its own state, and says so.
func TestLiveFailover(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, engine.Fleet{})
	leader, follower := c.awaitLeader(), c.follower()
	mustPost(t, leader.spec.API, "/v1/acquire", `{"resource":"held","ttl":"10m","holder":"worker"}`)
	sinceOf := func(lock map[string]any) time.Time {
		holder := lock["lock"].(map[string]any)["holders"].([]any)[0].(map[string]any)
		at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(holder["since"]))
		require.NoError(t, err, lock)
		return at
	}
	stream := openLive(t, follower.spec.API, "view=lock&resource=held", "")
	summary := stream.next("summary")
	require.Equal(t, leader.spec.ID, summary["member"], "a follower forwards the stream to the leader")
	require.Equal(t, false, summary["stale"])
	since := sinceOf(stream.next("lock"))
	own := openLive(t, leader.spec.API, "view=cluster", "")
	require.Len(t, own.next("cluster")["cluster"].(map[string]any)["members"], 3)

	leader.kill()
	_, _ = io.ReadAll(stream.events) // the stream of the former leader ends
	next := c.awaitLeader()
	eventually(t, "the other member knows the leader", func() bool {
		return c.follower() != nil
	})
	stream = openLive(t, c.follower().spec.API, "view=lock&resource=held", "")
	require.Equal(t, next.spec.ID, stream.next("summary")["leader"])
	lock := stream.next("lock")
	require.WithinDuration(t, since, sinceOf(lock), time.Second)
	require.Contains(t, fmt.Sprint(lock["history"]), "type:granted")
	members := mustPost(t, next.spec.API, "/v1/cluster-status", `{}`)["members"].([]any)
	require.Len(t, members, 3)
	for _, m := range members {
		m := m.(map[string]any)
		dead := m["id"] == leader.spec.ID
		require.Equal(t, dead, m["error"] != nil, m)
		require.Equal(t, dead, m["status"] == nil, m)
	}

	last := c.follower()
	next.kill()
	eventually(t, "there is no leader", func() bool { return last.status()["leader"] == nil })
	for query, event := range map[string]string{
		"view=lock&resource=held": "lock",
		"view=locks":              "locks",
		"view=cluster":            "cluster",
		"view=policies":           "policies",
	} {
		stream = openLive(t, last.spec.API, query, "")
		summary = stream.next("summary")
		require.Equal(t, last.spec.ID, summary["member"])
		require.Equal(t, true, summary["stale"])
		require.Equal(t, "not-serving", summary["health"])
		data := stream.next(event)
		if event == "lock" {
			require.WithinDuration(t, since, sinceOf(data), time.Second)
		}
	}
	code, answer := post(t, last.spec.API, "/v1/history", `{"resource":"held"}`)
	require.Equal(t, http.StatusServiceUnavailable, code, answer)

	next.start()
	c.awaitLeader()
	_, _ = io.ReadAll(stream.events) // the stream of the member without a leader ends
	eventually(t, "the restarted members know since when the lock is held", func() bool {
		stream := openLive(t, c.awaitLeader().spec.API, "view=lock&resource=held", "")
		defer stream.body.Close()
		return sinceOf(stream.next("lock")).Sub(since).Abs() < time.Second
	})
}
