package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/load"
	"github.com/leased-project/leased/lease"
)

// leaseTarget opens clients of a service with their default settings.
type leaseTarget struct {
	name         string
	endpoints    []string
	prefix       string // of the names of locks, which selects the mode
	withoutRedis bool
}

func targetOf(name string, endpoints []string) load.Target {
	if name == JSON {
		return &jsonTarget{endpoints: endpoints}
	}
	t := &leaseTarget{name: name, endpoints: endpoints, prefix: efficiencyPrefix}
	switch name {
	case Correctness:
		t.prefix = correctnessPrefix
	case Member:
		t.withoutRedis = true
	}
	return t
}

// Name implements [load.Target].
func (t *leaseTarget) Name() string { return t.name }

// Open implements [load.Target].
func (t *leaseTarget) Open(ctx context.Context) (load.Client, error) {
	c, err := client.Dial(ctx, t.endpoints, t.options()...)
	if err != nil {
		return nil, err
	}
	return &leaseClient{c, t.prefix}, nil
}

func (t *leaseTarget) options() []client.Option {
	options := []client.Option{client.WithLogger(slog.New(slog.DiscardHandler))}
	if t.withoutRedis {
		options = append(options, client.WithoutRedis())
	}
	return options
}

// tryOnce acquires and releases a lock with a new client. It fails while the policies of
// a new service do not give the lock its mode yet.
func (t *leaseTarget) tryOnce(ctx context.Context) error {
	c, err := client.Dial(ctx, t.endpoints, t.options()...)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	mode := lease.Correctness
	if t.prefix == efficiencyPrefix {
		mode = lease.Efficiency
	}
	l, err := c.Acquire(ctx, fencing.Resource(t.prefix+"ready"), lease.WithMode(mode))
	if err != nil {
		return err
	}
	return l.Release(ctx)
}

type leaseClient struct {
	client *lease.Client
	prefix string
}

func (c *leaseClient) Acquire(ctx context.Context, name string) (load.Held, error) {
	l, err := c.client.Acquire(ctx, fencing.Resource(c.prefix+name))
	if err != nil {
		return nil, err
	}
	return lock{uint64(l.Token()), l.Release}, nil
}

func (c *leaseClient) Close(ctx context.Context) error { return c.client.Close(ctx) }

// jsonTarget uses the JSON API, as a program without a client library does: each client
// has a connection to one of the members.
type jsonTarget struct {
	endpoints []string
	opened    atomic.Int64
}

// Name implements [load.Target].
func (t *jsonTarget) Name() string { return JSON }

// Open implements [load.Target].
func (t *jsonTarget) Open(context.Context) (load.Client, error) {
	return newJSONClient(t.endpoints, int(t.opened.Add(1)), "/v1/"), nil
}

// jsonClient has a connection to one of the servers.
type jsonClient struct {
	url  string
	http *http.Client
}

// newJSONClient returns the nth client.
func newJSONClient(endpoints []string, n int, path string) *jsonClient {
	return &jsonClient{url: "http://" + endpoints[n%len(endpoints)] + path,
		http: &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}}
}

// Acquire implements [load.Client].
func (c *jsonClient) Acquire(ctx context.Context, name string) (load.Held, error) {
	var held struct {
		Resource string `json:"resource"`
		Token    uint64 `json:"token"`
	}
	err := c.post(ctx, "acquire", map[string]any{"resource": correctnessPrefix + name, "wait": "1m"}, &held)
	if err != nil {
		return nil, err
	}
	return lock{held.Token, func(ctx context.Context) error {
		return c.post(ctx, "release", map[string]any{"resource": held.Resource, "token": held.Token}, nil)
	}}, nil
}

// Close implements [load.Client].
func (c *jsonClient) Close(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// post sends a request and decodes the answer, unless that is nil.
func (c *jsonClient) post(ctx context.Context, call string, body, answer any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+call, bytes.NewReader(data))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err = io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", call, response.Status, data)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(data, answer)
}
