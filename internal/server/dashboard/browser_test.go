package dashboard_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/stretchr/testify/require"
)

// TestPage runs the tests that share one member without users.
func TestPage(t *testing.T) {
	t.Parallel()
	m := startMember(t, "n1", "")
	t.Run("first steps", func(t *testing.T) { testFirstSteps(t, m) }) // while there are no locks
	for name, test := range map[string]func(*testing.T, *member){
		"live":             testLive,
		"search":           testSearch,
		"sort":             testSort,
		"pages":            testPages,
		"lock":             testLock,
		"break":            testBreak,
		"keyboard":         testKeyboard,
		"phone":            testPhone,
		"colors":           testColors,
		"hostile names":    testHostileNames,
		"policy":           testContentPolicy,
		"cluster":          testCluster,
		"policies":         testPolicies,
		"cluster states":   testClusterStates,
		"redis states":     testRedisStates,
		"migration states": testMigrationStates,
		"formats":          testFormats,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, m)
		})
	}
}

// The page of a service without locks says how to take one, and the command works.
func testFirstSteps(t *testing.T, m *member) {
	p := open(t, m, "")
	p.shows(".empty", "No lock is in use")
	p.shows(".empty pre", "http://"+m.Address()+"/v1/acquire")
	p.shows("#connection", "live")
	p.shows("#member", "n1")
	require.Empty(t, p.console())
}

// Changes of locks appear without a reload, and rows are updated in their places.
func testLive(t *testing.T, m *member) {
	p := open(t, m, "#/?search=live/")
	p.shows(".empty", "No lock in use matches")
	m.hold(t, "live/a", "ann")
	p.untilRows("live/a")
	p.shows("td.holder", "ann")
	p.until(`/^\d+ s$/.test(document.querySelector("td.held").textContent)`)
	p.until(`/m \d\d s$/.test(document.querySelector("td.left").textContent)`)
	value[bool](p, `(window.row = document.querySelector(".locks tbody tr"), true)`)
	m.await(t, "live/a", "ben")
	p.shows("td.queue", "1")
	m.hold(t, "live/b", "eve")
	p.untilRows("live/a", "live/b")
	require.True(t, value[bool](p, `window.row === document.querySelector(".locks tbody tr")`),
		"the row is the same element")
	require.Empty(t, p.console())
}

// The search field selects by name, holder and user, the URL keeps the selection, and "/" focuses it.
func testSearch(t *testing.T, m *member) {
	m.hold(t, "search/a", "ann")
	m.hold(t, "search/b", "the-searched-holder")
	p := open(t, m, "#/cluster")
	p.until(`document.querySelector(".cluster tbody tr")`)
	p.keys("/")
	p.until(`document.activeElement.id === "search"`)
	p.enter("#search", "search/") // the protocol types the "/", although the page prevents that
	p.untilRows("search/a", "search/b")
	p.keys("b")
	p.untilRows("search/b")
	require.Equal(t, "#/?search=search%2Fb", value[string](p, "location.hash"))
	p.keys("c")
	p.shows(".empty", "No lock in use matches")
	p.until(`Number(document.querySelector(".totals dd").textContent.replace(",", "")) >= 2`) // of all locks
	p.enter("#search", "Searched-Hold")
	p.untilRows("search/b")
	require.Empty(t, p.console())
}

// The heads of the table and the list of orders sort.
func testSort(t *testing.T, m *member) {
	for _, name := range []string{"sort/a", "sort/b", "sort/c"} {
		m.hold(t, name, "ann")
	}
	m.await(t, "sort/b", "ben")
	m.await(t, "sort/c", "ben")
	m.await(t, "sort/c", "eve")
	m.post(t, "report-refusal", "", map[string]any{"resource": "sort/b", "token": 1, "mark": 2, "gate": "sql"})
	p := open(t, m, "#/?search=sort/")
	p.untilRows("sort/c", "sort/b", "sort/a")
	p.click("th.name button")
	p.untilRows("sort/a", "sort/b", "sort/c")
	p.until(`document.querySelector("th.name").getAttribute("aria-sort") === "ascending"`)
	p.click("th.refused button")
	p.untilRows("sort/b", "sort/a", "sort/c")
	value[bool](p, `{
		const sort = document.querySelector("#sort");
		sort.value = "queue";
		sort.dispatchEvent(new Event("change"));
	}`)
	p.untilRows("sort/c", "sort/b", "sort/a")
	require.Empty(t, p.console())
}

// A long list has pages.
func testPages(t *testing.T, m *member) {
	for i := range 105 {
		m.hold(t, fmt.Sprintf("pages/%03d", i), "ann")
	}
	p := open(t, m, "#/?search=pages/")
	p.shows(".pager", "1 to 100 of 105")
	require.Len(t, p.rows(), 100)
	p.click(".pager button:last-child")
	p.untilRows("pages/100", "pages/101", "pages/102", "pages/103", "pages/104")
	p.shows(".pager", "101 to 105 of 105")
}

// The page of a lock shows who holds it, the queue, and its history with refused writes.
func testLock(t *testing.T, m *member) {
	first := m.post(t, "acquire", "", map[string]any{"resource": "lock/a", "holder": "ann", "ttl": "1h",
		"metadata": map[string]string{"build": "4711"}})
	p := open(t, m, lockPage("lock/a"))
	p.shows(".holder .big", "ann")
	p.shows(".metadata", "4711")
	p.shows(".facts", fmt.Sprint(first["token"]))
	m.await(t, "lock/a", "ben")
	m.await(t, "lock/a", "eve")
	p.until(`[...document.querySelectorAll(".queue .who")].map((who) => who.textContent).join() === "ben,eve"`)
	p.shows(".stuck", "ann has held it since")
	p.shows(".stuck", "2 clients wait")
	p.shows(".stuck", "It last renewed its lease at")
	p.shows(".stuck", "Its client is 127.0.0.1:")
	p.shows(".stuck", "Go-http-client")
	p.shows(".stuck code", fmt.Sprintf("leased break 'lock/a' --token %v", first["token"]))
	m.post(t, "release", "", map[string]any{"resource": "lock/a", "token": first["token"]})
	p.shows(".holder .big", "ben")
	p.shows(".event.released", "ann released the lock")
	m.post(t, "report-refusal", "", map[string]any{"resource": "lock/a", "token": first["token"], "mark": 77001,
		"gate": "sql", "holder": "ann"})
	p.shows(".event.refused", "the mark is 77001")
	p.until(`document.querySelector(".timeline .event").classList.contains("refused")`) // the newest is the first
	p.until(`document.querySelectorAll(".strip rect").length === 2`)
	p.until(`document.querySelectorAll(".strip line").length === 1`)
	require.Empty(t, p.console())

	for _, reader := range []string{"ann", "ben"} {
		m.post(t, "acquire", "", map[string]any{"resource": "lock/shared", "holder": reader, "ttl": "1h", "shared": true})
	}
	p = open(t, m, lockPage("lock/shared"))
	p.until(`new Set([...document.querySelectorAll(".strip rect")].map((lane) => lane.getAttribute("y"))).size === 2`)

	m.post(t, "acquire", "", map[string]any{"resource": "lock/permits", "ttl": "1h", "permits": 3})
	p = open(t, m, lockPage("lock/permits"))
	p.shows(".lock-head", "1 of 3 permits are held")
	p = open(t, m, "#/?search=lock/permits")
	p.shows("td.holder", "1 of 3 permits")

	p = open(t, m, "#/nowhere")
	p.shows("main", "There is no such page")
	p.shows("#connection", "no such page")
	require.Empty(t, p.console())
}

// Breaking a lease needs the name of the lock.
func testBreak(t *testing.T, m *member) {
	m.hold(t, "break/a", "ann")
	m.await(t, "break/a", "ben")
	p := open(t, m, lockPage("break/a"))
	p.shows(".holder .big", "ann")
	p.click(".holder .danger")
	p.shows("dialog", "can still write until the gate has admitted a newer token")
	require.True(t, value[bool](p, `document.querySelector("dialog .danger").disabled`), "before the name is typed")
	p.enter("#confirm-name", "break/b\r")
	p.shows("#break-message", "not the name of the lock")
	require.True(t, value[bool](p, `document.querySelector("dialog .danger").disabled`))
	value[bool](p, `(document.querySelector("dialog form").requestSubmit(), true)`) // past the button
	p.shows("#break-message", "Nothing was broken")
	p.shows(".holder .big", "ann")
	p.enter("#confirm-name", "break/a\r")
	p.until(`!document.querySelector("dialog")`)
	p.shows(".message.good", "is broken")
	p.shows(".holder .big", "ben")
	p.shows(".event.broken", "ann")

	p.click(".holder .danger") // the lease ends while the dialog is open
	inspected := m.post(t, "inspect", "", map[string]any{"resource": "break/a"})
	holder := inspected["lock"].(map[string]any)["holders"].([]any)[0].(map[string]any)
	m.post(t, "break", "", map[string]any{"resource": "break/a", "token": holder["token"]})
	p.enter("#confirm-name", "break/a\r")
	p.until(`document.querySelector("#break-message").innerText.length > 10`)
}

// The lock that blocks a deploy is found without a mouse.
func testKeyboard(t *testing.T, m *member) {
	m.hold(t, "keyboard/a", "ann")
	m.hold(t, "keyboard/b", "ben")
	p := open(t, m, "#/")
	p.until(`document.querySelector(".locks tbody tr")`)
	p.keys("/")
	p.until(`document.activeElement.id === "search"`)
	p.enter("#search", "keyboard/")
	p.untilRows("keyboard/a", "keyboard/b")
	p.keys(kb.ArrowDown)
	p.until(`document.activeElement.textContent === "keyboard/a"`)
	require.Equal(t, "solid", value[string](p, `getComputedStyle(document.activeElement.closest("tr")).outlineStyle`),
		"the focus is visible")
	p.keys(kb.ArrowDown)
	p.until(`document.activeElement.textContent === "keyboard/b"`)
	p.keys(kb.Enter)
	p.shows(".holder .big", "ben")
	for range 20 { // Tab reaches the button that breaks the lease
		if value[bool](p, `document.activeElement.matches(".holder .danger")`) {
			break
		}
		p.keys(kb.Tab)
	}
	p.until(`document.activeElement.matches(".holder .danger")`)
	p.keys(kb.Enter)
	p.until(`document.activeElement.id === "confirm-name"`)
	p.keys(kb.Escape)
	p.until(`!document.querySelector("dialog")`)
}

// No view is wider than a phone.
func testPhone(t *testing.T, m *member) {
	name := "phone/" + fmt.Sprintf("%0120d", 7)
	token := m.hold(t, name, "a-holder-with-a-name-that-is-longer-than-the-screen-of-a-phone")
	m.await(t, name, "ben")
	m.post(t, "report-refusal", "", map[string]any{"resource": name, "token": 1, "mark": token, "gate": "sql"})
	p := open(t, m, "#/?search=phone/")
	require.NoError(t, p.Show(390, 844, "light"))
	for _, view := range []struct{ fragment, ready string }{
		{"#/?search=phone/", ".locks tbody tr"}, {lockPage(name), ".event.refused"}, {"#/cluster", ".cluster tbody tr"},
		{"#/policies", ".policies .empty:not([hidden]), .policies tbody tr"},
	} {
		value[bool](p, fmt.Sprintf("(location.hash = %s, true)", js(view.fragment)))
		p.until("document.querySelector(%s)", js(view.ready))
		require.LessOrEqual(t, value[float64](p, "document.documentElement.scrollWidth"), 390.0, view.fragment)
	}
}

// The page follows the color scheme of the system.
func testColors(t *testing.T, m *member) {
	p := open(t, m, "#/")
	background := `getComputedStyle(document.body).backgroundColor.match(/\d+/g).slice(0, 3)
		.reduce((sum, part) => sum + Number(part), 0)`
	p.shows("#connection", "live")
	require.Greater(t, value[float64](p, background), 600.0)
	require.NoError(t, p.Show(1280, 800, "dark"))
	require.Less(t, value[float64](p, background), 150.0)
}

// Names are shown as text, whatever they contain.
func testHostileNames(t *testing.T, m *member) {
	markup := `<img src=x onerror="window.attacked=1">`
	lock := `hostile/` + markup + `'"><script>window.attacked=1</script>日本語 %2F?#&`
	m.post(t, "acquire", "", map[string]any{"resource": lock, "holder": markup, "ttl": "1h",
		"metadata": map[string]string{markup: markup}})
	m.await(t, lock, `"><svg onload="window.attacked=1">`)
	m.post(t, "report-refusal", "", map[string]any{"resource": lock, "token": 1, "mark": 2, "gate": "http",
		"holder": markup})
	p := open(t, m, "#/?search=hostile/")
	p.untilRows(lock)
	p.shows("td.holder", markup)
	p.click("td.name a")
	p.until("document.querySelector('h1.name')?.textContent === %s", js(lock))
	p.shows(".holder .big", markup)
	p.shows(".metadata", markup)
	p.shows(".queue", `<svg onload=`)
	p.shows(".event.refused", markup)
	p.click(".holder .danger")
	p.shows("dialog", markup)
	inserted := `document.querySelectorAll("main img, main script, main iframe, .queue svg, dialog img").length`
	require.Zero(t, value[int](p, inserted))
	require.False(t, value[bool](p, `"attacked" in window`))
	require.Empty(t, p.console())
}

// The content security policy blocks scripts in the page, other hosts and frames. Other
// sites cannot make a browser break a lease.
func testContentPolicy(t *testing.T, m *member) {
	response, err := http.Get("http://" + m.Address() + "/")
	require.NoError(t, err)
	response.Body.Close()
	require.Contains(t, response.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
	require.Equal(t, "no-referrer", response.Header.Get("Referrer-Policy"))
	request, err := http.NewRequestWithContext(testserver.Context(t), http.MethodPost, "http://"+m.Address()+"/v1/break",
		strings.NewReader(`{"resource":"a","token":1}`))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Sec-Fetch-Site", "cross-site")
	response, err = http.DefaultClient.Do(request)
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, http.StatusForbidden, response.StatusCode)

	p := open(t, m, "#/")
	p.shows("#connection", "live")
	value[bool](p, `{
		window.violations = [];
		document.addEventListener("securitypolicyviolation",
			(event) => window.violations.push(event.effectiveDirective));
		true;
	}`)
	value[bool](p, `{
		const script = document.createElement("script");
		script.textContent = "window.attacked = 1";
		const image = document.createElement("div");
		image.setAttribute("onclick", "window.attacked = 1");
		document.body.append(script, image);
		image.click();
		fetch("http://127.0.0.1:9/").catch(() => {});
		true;
	}`)
	p.until(`["script-src-elem", "script-src-attr", "connect-src"].every((name) => window.violations.includes(name))`)
	require.False(t, value[bool](p, `"attacked" in window`))
}

func testCluster(t *testing.T, m *member) {
	p := open(t, m, "#/cluster")
	p.shows(".cluster tbody tr", "leader")
	p.shows(".cluster tbody tr td.id", "n1")
	p.until(`/^[0-9a-f]{12} at /.test(document.querySelector(".cluster td.hash").textContent)`)
	p.shows(".cluster", "the cluster has no Redis nodes")
	require.True(t, value[bool](p, `document.querySelector(".cluster .message[role=alert]").hidden`),
		"the replicas do not differ")
	require.Empty(t, p.console())
}

func testPolicies(t *testing.T, m *member) {
	p := open(t, m, "#/policies")
	p.shows(".policies .empty", "There are no policies")
	m.post(t, "set-policy", "", map[string]any{"policy": map[string]any{"prefix": "policies/", "mode": "correctness",
		"ttl": "42s"}})
	p.shows(".policies tbody tr", "policies/*")
	p.shows(".policies tbody tr", "42s")
	p = open(t, m, lockPage("policies/a")) // links to its policy
	p.shows(".lock-head a", "policy policies/*")
	p.click(".lock-head a")
	p.shows(".policies tbody tr[aria-current]", "policies/*")
	require.Empty(t, p.console())
}
