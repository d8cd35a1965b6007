package peers

import (
	"context"
	"encoding/base64"

	"github.com/leased-project/leased/internal/load"
)

// openEtcdJSON opens clients of the gateway.
func openEtcdJSON(endpoints []string) load.Target {
	next := jsonClients(endpoints, "/v3/")
	return func(ctx context.Context) (load.Client, error) {
		c := &etcdJSONClient{jsonClient: next()}
		var granted struct {
			ID string `json:"ID"`
		}
		if err := c.post(ctx, "lease/grant", map[string]any{"TTL": int(jsonTTL.Seconds())}, &granted); err != nil {
			return nil, err
		}
		c.lease = granted.ID
		return c, nil
	}
}

type etcdJSONClient struct {
	*jsonClient
	lease string
}

// Acquire implements [load.Client].
func (c *etcdJSONClient) Acquire(ctx context.Context, name string) (load.Held, error) {
	var held struct {
		Key    string `json:"key"`
		Header struct {
			Revision uint64 `json:"revision,string"`
		} `json:"header"`
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(name))
	if err := c.post(ctx, "lock/lock", map[string]any{"name": encoded, "lease": c.lease}, &held); err != nil {
		return load.Held{}, err
	}
	return load.Held{Token: held.Header.Revision, Release: func(ctx context.Context) error {
		return c.post(ctx, "lock/unlock", map[string]any{"key": held.Key}, nil)
	}}, nil
}
