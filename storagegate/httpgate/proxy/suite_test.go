package proxy_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/gatetest"
	"github.com/leased-project/leased/storagegate/httpgate"
	"github.com/leased-project/leased/storagegate/httpgate/proxy"
)

// service is the one that cannot be changed: it keeps a value for each resource
// and knows nothing of tokens.
type service struct {
	mu     sync.Mutex
	values map[string]string
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPut {
		s.values[name] = string(body)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	io.WriteString(w, s.values[name])
}

func byName(r *http.Request) (fencing.Resource, error) {
	return fencing.ParseResource(r.URL.Query().Get("name"))
}

// rig is a service with a proxy in front of it, seen by the suite as a gate.
type rig struct {
	*proxy.Proxy
	url  string
	gone chan struct{} // a client has left, or has its answer
}

// newRig puts a proxy in front of handler. change may alter its configuration.
func newRig(t testing.TB, handler http.Handler, change ...func(*proxy.Config)) *rig {
	t.Helper()
	upstream := httptest.NewServer(handler)
	t.Cleanup(upstream.Close)
	target, err := url.Parse(upstream.URL)
	require.NoError(t, err)
	config := proxy.Config{Upstream: target, Resource: byName, Journal: filepath.Join(t.TempDir(), "journal.db"),
		AnswerTimeout: time.Minute, WaitTimeout: time.Minute, Log: slog.New(slog.DiscardHandler), Now: time.Now}
	for _, c := range change {
		c(&config)
	}
	g := start(t, config)
	if held, ok := handler.(interface{ release() }); ok {
		t.Cleanup(held.release)
	}
	return g
}

func start(t testing.TB, config proxy.Config) *rig {
	t.Helper()
	p, err := proxy.Open(config)
	require.NoError(t, err)
	gone := make(chan struct{}, 1)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		context.AfterFunc(r.Context(), func() {
			select {
			case gone <- struct{}{}:
			default:
			}
		})
		p.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		front.Close()
		over, cancel := context.WithCancel(context.Background())
		cancel()
		p.Close(over)
	})
	return &rig{p, front.URL, gone}
}

func (g *rig) request(ctx context.Context, method string, resource fencing.Resource, token fencing.Token, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, g.url+"/?name="+url.QueryEscape(string(resource)), body)
	if err == nil && token != fencing.None {
		httpgate.SetToken(r, token)
	}
	return r, err
}

func (g *rig) send(ctx context.Context, method string, resource fencing.Resource, token fencing.Token, value string) (string, error) {
	r, err := g.request(ctx, method, resource, token, strings.NewReader(value))
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if err := httpgate.Check(resp); err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func (g *rig) Write(ctx context.Context, resource fencing.Resource, token fencing.Token, value string) error {
	_, err := g.send(ctx, http.MethodPut, resource, token, value)
	return err
}

func (g *rig) Read(ctx context.Context, resource fencing.Resource) (string, error) {
	return g.send(ctx, http.MethodGet, resource, fencing.None, "")
}

func (g *rig) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if token == fencing.None { // over HTTP this is just a read: tell the suite what the rule says
		mark, err := g.Mark(ctx, resource)
		if err != nil {
			return err
		}
		return g.Record(resource, token, fencing.Rule{}.Enter(resource, mark, token))
	}
	_, err := g.send(ctx, http.MethodGet, resource, token, "")
	return err
}

func TestGate(t *testing.T) {
	gatetest.Run(t, func(t *testing.T) gatetest.Opener {
		var shared *rig
		return func(_ testing.TB, rule fencing.Rule) gatetest.Subject {
			if shared == nil {
				shared = newRig(t, &service{values: map[string]string{}}, func(c *proxy.Config) { c.Rule = rule })
			}
			return shared
		}
	})
}
