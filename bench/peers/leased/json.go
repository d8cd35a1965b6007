package leased

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/leased-project/leased/internal/load"
)

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
	n := int(t.opened.Add(1))
	return &jsonClient{url: "http://" + t.endpoints[n%len(t.endpoints)] + "/v1/", http: &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}}, nil
}

type jsonClient struct {
	url  string
	http *http.Client
}

// jsonHeld is the answer to acquire.
type jsonHeld struct {
	client   *jsonClient
	Resource string `json:"resource"`
	Fence    uint64 `json:"token"`
}

// Acquire implements [load.Client].
func (c *jsonClient) Acquire(ctx context.Context, name string) (load.Held, error) {
	held := &jsonHeld{client: c}
	err := c.post(ctx, "acquire", map[string]any{"resource": correctnessPrefix + name, "wait": "1m"}, held)
	if err != nil {
		return nil, err
	}
	return held, nil
}

// Close implements [load.Client].
func (c *jsonClient) Close(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// Token implements [load.Held].
func (h *jsonHeld) Token() uint64 { return h.Fence }

// Release implements [load.Held].
func (h *jsonHeld) Release(ctx context.Context) error {
	return h.client.post(ctx, "release", map[string]any{"resource": h.Resource, "token": h.Fence}, nil)
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
