package httpgate_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/callgate"
	"github.com/leased-project/leased/storagegate/gatetest"
	"github.com/leased-project/leased/storagegate/httpgate"
)

// service is a small HTTP service that keeps one value for each resource.
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

// subject is a client of the service, seen by the suite as a gate.
type subject struct {
	*callgate.Guard
	url string
}

func (s *subject) send(ctx context.Context, method string, resource fencing.Resource, token fencing.Token, value string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url+"?name="+url.QueryEscape(string(resource)), strings.NewReader(value))
	if err != nil {
		return "", err
	}
	if token != fencing.None {
		httpgate.SetToken(r, token)
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

func (s *subject) Write(ctx context.Context, resource fencing.Resource, token fencing.Token, value string) error {
	_, err := s.send(ctx, http.MethodPut, resource, token, value)
	return err
}

func (s *subject) Read(ctx context.Context, resource fencing.Resource) (string, error) {
	return s.send(ctx, http.MethodGet, resource, fencing.None, "")
}

func (s *subject) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if token == fencing.None { // over HTTP this is just a read
		return s.Guard.Enter(ctx, resource, token)
	}
	_, err := s.send(ctx, http.MethodGet, resource, token, "")
	return err
}

func TestGate(t *testing.T) {
	byName := func(r *http.Request) (fencing.Resource, error) {
		return fencing.ParseResource(r.URL.Query().Get("name"))
	}
	gatetest.Run(t, func(t *testing.T) gatetest.Opener {
		var shared *subject
		return func(_ testing.TB, rule fencing.Rule) gatetest.Subject {
			if shared == nil {
				gate, err := httpgate.New(callgate.Memory(rule), byName)
				require.NoError(t, err)
				server := httptest.NewServer(gate.Handler(&service{values: map[string]string{}}))
				t.Cleanup(server.Close)
				shared = &subject{gate.Guard, server.URL}
			}
			return shared
		}
	})
}
