package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/cmd/leased/internal/gateproxy"
	"github.com/leased-project/leased/fencing"
)

// adminDefault is the default admin address of a gate proxy.
const adminDefault = "127.0.0.1:8091"

func setUpProxyFlights(c *cobra.Command) {
	var admin string
	var asJSON bool
	c.RunE = func(c *cobra.Command, _ []string) error {
		body, err := askProxy(c, http.MethodGet, admin, "/flights", nil)
		if err != nil {
			return err
		}
		if asJSON {
			_, err := c.OutOrStdout().Write(body)
			return err
		}
		var flights []gateproxy.Flight
		if err := json.Unmarshal(body, &flights); err != nil {
			return fmt.Errorf("decode the list of requests: %w", err)
		}
		return (&output{}).print(c, nil, func(t *tabwriter.Writer) { tableOfFlights(t, flights) })
	}
	c.Flags().StringVar(&admin, "admin", adminDefault, "admin address of the proxy")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
}

func tableOfFlights(t *tabwriter.Writer, flights []gateproxy.Flight) {
	row(t, "RESOURCE", "TOKEN", "STATE", "SENT", "REQUEST", "REASON")
	for _, f := range flights {
		state := "in flight"
		if f.Closed {
			state = "closed"
		}
		row(t, f.Resource, f.Token, state, f.Sent.Format(time.RFC3339), f.Method+" "+f.Path, f.Reason)
	}
}

func setUpProxyReopen(c *cobra.Command) {
	var admin string
	var abandon bool
	c.Args = exactly(1, "the name of a resource")
	c.RunE = func(c *cobra.Command, args []string) error {
		resource, err := fencing.ParseResource(args[0])
		if err != nil {
			return usageError(err)
		}
		query := url.Values{"resource": {string(resource)}}
		if abandon {
			query.Set("abandon", "true")
		}
		if _, err := askProxy(c, http.MethodPost, admin, "/reopen", query); err != nil {
			return err
		}
		return say(c, "reopened %s", resource)
	}
	c.Flags().StringVar(&admin, "admin", adminDefault, "admin address of the proxy")
	c.Flags().BoolVar(&abandon, "abandon", false, "also abandon a request that is still in progress")
}

// askProxy calls the admin API of a gate proxy.
func askProxy(c *cobra.Command, method, admin, path string, query url.Values) ([]byte, error) {
	if err := loopback(admin); err != nil {
		return nil, usageError(err)
	}
	target := url.URL{Scheme: "http", Host: admin, Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(c.Context(), method, target.String(), nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Timeout: 30 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("connect to the gate proxy: %w; check that it runs and that --admin is its admin address", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer of the gate proxy: %w", err)
	}
	if response.StatusCode >= 300 {
		var failure struct {
			Error  string `json:"error"`
			Detail string `json:"detail"`
		}
		_ = json.Unmarshal(body, &failure)
		return nil, fmt.Errorf("the gate proxy answered %s: %s%s", response.Status, failure.Error, failure.Detail)
	}
	return body, nil
}
