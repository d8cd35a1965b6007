package peers

import (
	"context"
	"errors"

	"github.com/leased-project/leased/internal/load"
)

// openJSON opens clients of the JSON API, as a program without a client library uses it: each
// has a connection to one of the members, and a session.
func openJSON(endpoints []string) load.Target {
	next := jsonClients(endpoints, "/v1/")
	return func(ctx context.Context) (load.Client, error) {
		c := &leasedJSONClient{jsonClient: next()}
		if err := c.post(ctx, "open-session", map[string]any{"ttl": jsonTTL.String()}, &c.session); err != nil {
			return nil, err
		}
		return c, nil
	}
}

type leasedJSONClient struct {
	*jsonClient
	session struct {
		ID string `json:"sessionId"`
	}
	nonce uint64 // of the last attempt
}

// Acquire implements [load.Client].
func (c *leasedJSONClient) Acquire(ctx context.Context, name string) (load.Held, error) {
	c.nonce++
	nonce := c.nonce
	var held struct {
		Token uint64 `json:"token"`
	}
	if err := c.post(ctx, "acquire", map[string]any{"resource": correctnessPrefix + name, "wait": "1m",
		"sessionId": c.session.ID, "nonce": nonce}, &held); err != nil {
		return load.Held{}, err
	}
	return load.Held{Token: held.Token, Release: func(ctx context.Context) error {
		return c.post(ctx, "release", map[string]any{"sessionId": c.session.ID, "nonce": nonce}, nil)
	}}, nil
}

// Close implements [load.Client].
func (c *leasedJSONClient) Close(ctx context.Context) error {
	err := c.post(ctx, "close-session", map[string]any{"sessionId": c.session.ID}, nil)
	return errors.Join(err, c.jsonClient.Close(ctx))
}
