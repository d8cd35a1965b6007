package dashboard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/browser"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/raftstore"
)

// chromium is one browser for all tests. Each tab has a storage of its own.
var chromium = sync.OnceValues(func() (*browser.Browser, error) { return browser.Start(context.Background()) })

// parallelTests is the number of tests that run at the same time. They mostly wait.
const parallelTests = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", parallelTests); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if b, err := chromium(); err == nil {
		b.Close()
	}
	os.Exit(code)
}

// member is a member of the service that runs inside the test process.
type member struct {
	*server.Server
	node *raftstore.Node
	stop func()
}

// startMember starts a member. It forms a cluster of its own, or joins another member.
func startMember(t testing.TB, id, join string, change ...func(*server.Config)) *member {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	config := server.Config{Logger: quiet, Version: "test",
		Raft: raftstore.Config{ID: id, Storage: raftstore.MemoryStorage(), Address: "127.0.0.1:0", Logger: quiet}}
	for _, f := range change {
		f(&config)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, err := server.New(config, listener)
	require.NoError(t, err)
	node := s.Node()
	done := make(chan error, 1)
	go func() { done <- s.Serve() }()
	m := &member{Server: s, node: node, stop: sync.OnceFunc(func() {
		_ = s.Close()
		<-done
	})}
	t.Cleanup(m.stop)
	if join == "" {
		require.NoError(t, node.Bootstrap())
		testserver.Eventually(t, "the member leads", node.Leads)
	} else {
		require.NoError(t, s.Join(testserver.Context(t), join))
	}
	return m
}

// post makes a call of the API that must succeed, with a secret unless it is empty.
func (m *member) post(t testing.TB, method, secret string, request map[string]any) (answer map[string]any) {
	t.Helper()
	response, err := m.call(testserver.Context(t), method, secret, request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, string(text))
	require.NoError(t, json.Unmarshal(text, &answer))
	return answer
}

func (m *member) call(ctx context.Context, method, secret string, body map[string]any) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+m.Address()+"/v1/"+method,
		bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if secret != "" {
		request.Header.Set("Authorization", "Bearer "+secret)
	}
	return http.DefaultClient.Do(request)
}

// hold acquires a lock for the rest of the test, and returns its token.
func (m *member) hold(t testing.TB, lock, holder string) uint64 {
	t.Helper()
	return uint64(m.post(t, "acquire", "", map[string]any{"resource": lock, "holder": holder,
		"ttl": "1h"})["token"].(float64))
}

// await lets a holder wait for a lock, until the test ends.
func (m *member) await(t testing.TB, lock, holder string) {
	t.Helper()
	ctx, cancel := context.WithCancel(testserver.Context(t))
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		response, err := m.call(ctx, "acquire", "", map[string]any{"resource": lock, "holder": holder, "ttl": "1h",
			"wait": "1h"})
		if err == nil {
			response.Body.Close()
		}
	}()
	testserver.Eventually(t, holder+" waits", func() bool {
		lock, _ := m.post(t, "inspect", "", map[string]any{"resource": lock})["lock"].(map[string]any)
		waiters, _ := lock["waiters"].([]any)
		for _, w := range waiters {
			if w.(map[string]any)["holder"] == holder {
				return true
			}
		}
		return false
	})
}

// page is the dashboard of a member in a tab.
type page struct {
	*browser.Tab
	t      testing.TB
	ctx    context.Context
	member *member

	mu     sync.Mutex
	errors []string // of the console
}

// open opens the dashboard at a fragment of its URL, such as "#/cluster".
func open(t testing.TB, m *member, fragment string) *page {
	t.Helper()
	b, err := chromium()
	require.NoError(t, err)
	ctx := testserver.Context(t)
	tab, err := b.Open(context.Background()) // until the cleanup, so that a failed test can read the page
	require.NoError(t, err)
	p := &page{Tab: tab, t: t, ctx: ctx, member: m}
	messages := tab.Console()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for message, err := range messages {
			if err != nil {
				return
			}
			if message.IsException() || message.Type == chromedp.ConsoleError {
				p.mu.Lock()
				p.errors = append(p.errors, message.String())
				p.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() { tab.Close(); <-done })
	require.NoError(t, tab.Show(1280, 800, "light"))
	require.NoError(t, tab.Go("http://"+m.Address()+"/"+fragment))
	return p
}

// console returns the errors in the console.
func (p *page) console() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.errors...)
}

// until waits until an expression in the page is true.
func (p *page) until(format string, args ...any) {
	p.t.Helper()
	if err := p.Await(p.ctx, fmt.Sprintf(format, args...)); err != nil {
		text, _ := browser.Value[string](p.Tab, "document.body.innerText")
		require.NoError(p.t, err, "the page shows: %s, its console: %v", text, p.console())
	}
}

// shows waits until the first element of a selector contains a text.
func (p *page) shows(selector, text string) {
	p.t.Helper()
	p.until("document.querySelector(%s)?.innerText.includes(%s)", js(selector), js(text))
}

// lacks requires that the page does not contain a text.
func (p *page) lacks(text string) {
	p.t.Helper()
	require.NotContains(p.t, value[string](p, "document.body.innerText"), text)
}

// click clicks an element when it is visible.
func (p *page) click(selector string) {
	p.t.Helper()
	require.NoError(p.t, p.Do(chromedp.WaitVisible(chromedp.CSS(selector)), chromedp.Click(chromedp.CSS(selector))))
}

// keys presses keys, on the element that has the focus.
func (p *page) keys(keys string) {
	p.t.Helper()
	require.NoError(p.t, p.Do(chromedp.KeyEvent(keys)))
}

// enter replaces the text of an input.
func (p *page) enter(selector, text string) {
	p.t.Helper()
	p.until("document.querySelector(%s)", js(selector))
	value[bool](p, fmt.Sprintf("(document.querySelector(%s).select(), true)", js(selector)))
	require.NoError(p.t, p.Do(chromedp.Focus(chromedp.CSS(selector)), chromedp.KeyEvent(text)))
}

// rows returns the names of the locks in the table, in order.
func (p *page) rows() []string {
	p.t.Helper()
	return value[[]string](p, namesInTable)
}

// namesInTable is an expression for the names of the locks in the table.
const namesInTable = `[...document.querySelectorAll(".locks tbody td.name")].map((cell) => cell.textContent)`

// untilRows waits until the table has these locks, in this order.
func (p *page) untilRows(names ...string) {
	p.t.Helper()
	p.until("JSON.stringify("+namesInTable+") === %s", js(string(asJSON(names))))
}

// value evaluates an expression in the page.
func value[T any](p *page, expression string) T {
	p.t.Helper()
	v, err := browser.Value[T](p.Tab, expression)
	require.NoError(p.t, err, expression)
	return v
}

// js returns a text as an expression.
func js(text string) string { return string(asJSON(text)) }

func asJSON(value any) []byte {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err)
	}
	return bytes.TrimSpace(text.Bytes())
}

// lockPage returns the fragment of a lock's page.
func lockPage(lock string) string { return "#/lock/" + url.PathEscape(lock) }
