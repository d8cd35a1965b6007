package dashboard_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// render lets a view show an event in an element of its own, for states that are hard to
// reach with a real cluster.
func (p *page) render(module, open, event, data string) {
	p.t.Helper()
	value[bool](p, fmt.Sprintf(`{
		document.getElementById("rendered")?.remove();
		const box = document.createElement("div");
		box.id = "rendered";
		import("/ui/%s").then((module) => {
			module.%s(box, { watch() {}, query: new URLSearchParams() }).receive(%s, %s, performance.now());
			document.body.append(box);
		});
		true;
	}`, module, open, js(event), data))
	p.until(`document.getElementById("rendered")`)
}

// The view of the cluster warns of replicas that differ, and tells why a member or a Redis
// node does not take part.
func testClusterStates(t *testing.T, m *member) {
	p := open(t, m, "#/policies")
	p.shows("#connection", "live")
	p.render("cluster.js", "openCluster", "cluster", `{
		"cluster": {"member": "n2", "members": [
			{"id": "n1", "status": {"id": "n1", "state": "leader", "serves": true, "term": 7,
				"appliedIndex": 90, "chainIndex": 90, "chainHash": "aaaaaaaaaaaaaaaa", "members": [
				{"id": "n1", "voter": true, "leader": true},
				{"id": "n2", "voter": true, "lag": 0},
				{"id": "n3", "voter": true, "lag": 812},
				{"id": "n4", "lag": 3}]}},
			{"id": "n2", "status": {"id": "n2", "state": "follower", "term": 7,
				"appliedIndex": 90, "chainIndex": 90, "chainHash": "bbbbbbbbbbbbbbbb"}},
			{"id": "n3", "error": "dial 10.0.0.3:7420: connection refused"},
			{"id": "n4", "status": {"id": "n4", "state": "follower", "term": 7,
				"appliedIndex": 87, "chainIndex": 87, "chainHash": "cccccccccccccccc"}}]},
		"fleet": {"version": 12, "fleet": {"addresses": ["a:1", "b:2", "c:3"]}, "waitingFor": "2 of 3 nodes", "nodes": [
			{"address": "a:1", "version": 12, "max": 70, "floor": 10, "ceiling": 99, "skew": "3ms"},
			{"address": "b:2", "quarantine": "42s", "empty": true},
			{"address": "c:3", "error": "timeout"}]}}`)
	p.shows("#rendered [role=alert]", "The replicas differ: n1, n2 applied")
	p.shows("#rendered .totals", "2 of 3")
	rows := value[[]string](p, `[...document.querySelectorAll("#rendered tbody tr")]
		.map((row) => row.innerText.replace(/\s+/g, " "))`)
	require.Len(t, rows, 7)
	for i, want := range []string{"leader", "n2 follower", "unreachable dial 10.0.0.3:7420: connection refused",
		"learner joining: 96 %, 3 log entries are missing",
		"votes 12 10 to 99 70 3ms", "empty, votes in 42 s", "unreachable timeout"} {
		require.Contains(t, rows[i], want)
	}
	require.Contains(t, rows[2], "812", "the lag")
	require.NotContains(t, rows[3], "differs", "another chain index")
	p.shows("#rendered", "Efficiency mode is not ready: 1 of 3 Redis nodes vote, 2 are needed.")
}

// Efficiency mode is ready only while a quorum of the Redis nodes votes.
func testRedisStates(t *testing.T, m *member) {
	p := open(t, m, "#/policies")
	p.shows("#connection", "live")
	for _, test := range []struct{ nodes, tile, message, text string }{
		{`{"address": "a:1"}, {"address": "b:1"}, {"address": "c:1"}`, "", "message good", "Efficiency mode is ready."},
		{`{"address": "a:1"}, {"address": "b:1"}, {"address": "c:1", "error": "timeout"}`, "some", "message warn",
			"2 of 3 Redis nodes vote, 2 are needed"},
		{`{"address": "a:1"}, {"address": "b:1", "empty": true}, {"address": "c:1", "error": "timeout"}`, "bad",
			"message bad", "not ready: 1 of 3 Redis nodes vote"},
		{`{"address": "a:1"}, {"address": "b:1", "unnamed": true, "version": 12}, {"address": "c:1", "error": "timeout"}`,
			"bad", "message bad", "not ready: 1 of 3 Redis nodes vote"},
		{``, "bad", "message bad", "not ready: 0 of 3 Redis nodes vote"},
	} {
		p.render("cluster.js", "openCluster", "cluster",
			fmt.Sprintf(`{"fleet": {"ready": true, "fleet": {"addresses": ["a:1", "b:1", "c:1"]}, "nodes": [%s]}}`, test.nodes))
		p.shows("#rendered [role=status]", test.text)
		require.Equal(t, test.message, value[string](p, `document.querySelector("#rendered [role=status]").className`))
		require.Equal(t, test.tile, value[string](p,
			`document.querySelector("#rendered .totals > div:last-child").className`))
	}
}

// The view of the policies shows what a migration waits for, and an outdated file.
func testMigrationStates(t *testing.T, m *member) {
	p := open(t, m, "#/cluster")
	p.shows("#connection", "live")
	p.render("policies.js", "openPolicies", "policies", `{"version": 9, "member": "n1",
		"policies": [{"prefix": "report/", "mode": "correctness", "next": "efficiency", "ttl": "10s"}],
		"migrations": [{"prefix": "report/", "from": "correctness", "to": "efficiency", "waitingFor": "3 leases to end",
			"holders": 3}],
		"filePolicies": [{"prefix": "report/", "mode": "correctness", "ttl": "20s"}]}`)
	p.shows("#rendered .migration", "report/* is migrating from correctness to efficiency mode")
	p.shows("#rendered .migration", "It waits for: 3 leases to end")
	p.shows("#rendered .migration", "3 locks still held")
	p.shows("#rendered .migration", "leased policy set 'report/*' --abort")
	p.shows("#rendered tbody", "migrating to efficiency")
	p.shows("#rendered .message", "The configuration file of member n1 differs")
}

// Durations of the API are written for people.
func testFormats(t *testing.T, m *member) {
	p := open(t, m, "#/")
	value[bool](p, `(import("/ui/format.js").then((f) => { window.f = f; }), true)`)
	p.until("window.f")
	for text, want := range map[string]string{"": "—", "999.9ms": "999 ms", "250µs": "< 1 ms", "1.2s": "1.2 s",
		"59.9s": "59 s", "1m30.5s": "1 m 30 s",
		"1h2m3s": "1 h 02 m", "49h0m0s": "2 d 1 h", "0s": "0.0 s"} {
		require.Equal(t, want, value[string](p, fmt.Sprintf("f.duration(f.millis(%s))", js(text))), text)
	}
	require.Equal(t, "0.0 s", value[string](p, "f.countdown(-5)"), "no time is left")
	require.Equal(t, "9007199254740991", value[string](p, "f.token(2 ** 53 - 1)"), "the largest token")
	require.Equal(t, `'it'\''s/*'`, value[string](p, `f.shellQuote("it's/*")`))
	require.Equal(t, "Locks in efficiency mode are not available: 0 of 5 Redis nodes agreed, 3 are needed.",
		value[string](p, `f.shortMessage({code: "unavailable", message: "lock service is unavailable: " +
			"0 of 5 Redis nodes agreed, 3 are needed; see 'leased redis status': a:1: dial\nb:1: dial"})`))
	require.Equal(t, "< 0.1,2.5,1,234", value[string](p, "[f.rate(0.04), f.rate(2.46), f.rate(1234.4)].join()"))
}
