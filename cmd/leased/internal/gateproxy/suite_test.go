package gateproxy_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/gateproxy"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/servicetest"
	"github.com/leased-project/leased/storagegate/gatetest"
)

// fixture is a service behind a proxy, as a gatetest.Subject.
type fixture struct {
	servicetest.HTTPClient
	proxy *gateproxy.Proxy
	gone  chan struct{} // a client has left, or has its response
}

// newFixture starts a proxy in front of handler. change can modify its
// configuration.
func newFixture(t testing.TB, handler http.Handler, change ...func(*gateproxy.Config)) *fixture {
	t.Helper()
	upstream := httptest.NewServer(handler)
	t.Cleanup(upstream.Close)
	target, err := url.Parse(upstream.URL)
	require.NoError(t, err)
	config := gateproxy.Config{
		Upstream:      target,
		Resource:      servicetest.ResourceOf,
		Journal:       filepath.Join(t.TempDir(), "journal.db"),
		Rule:          fencing.Rule{MaxJump: fencing.DefaultMaxJump},
		AnswerTimeout: time.Minute,
		WaitTimeout:   time.Minute,
		ReadTimeout:   time.Minute,
		Buffer:        1 << 20,
		UnknownStatus: gateproxy.DefaultUnknownStatus(),
		Log:           slog.New(slog.DiscardHandler),
		Now:           time.Now,
	}
	for _, c := range change {
		c(&config)
	}
	f := start(t, config)
	if blocking, ok := handler.(interface{ release() }); ok {
		t.Cleanup(blocking.release)
	}
	return f
}

func start(t testing.TB, config gateproxy.Config) *fixture {
	t.Helper()
	p, err := gateproxy.Open(config)
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
		cancelled, cancel := context.WithCancel(context.Background())
		cancel()
		p.Close(cancelled)
	})
	return &fixture{servicetest.HTTPClient{Gate: p, URL: front.URL}, p, gone}
}

// Reset is the call of the operator.
func (f *fixture) Reset(ctx context.Context, resource fencing.Resource, expected, to fencing.Token) error {
	return f.proxy.Reset(ctx, resource, expected, to)
}

func TestGate(t *testing.T) {
	gatetest.Run(t, func(t *testing.T) gatetest.Opener {
		var shared *fixture
		return func(_ testing.TB, rule fencing.Rule) gatetest.Subject {
			if shared == nil {
				shared = newFixture(t, &servicetest.Store{}, func(c *gateproxy.Config) { c.Rule = rule })
			}
			return shared
		}
	})
}
