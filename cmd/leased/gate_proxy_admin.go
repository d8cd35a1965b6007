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

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/httpgate/proxy"
)

// adminDefault is the default admin address of a gate proxy.
const adminDefault = "127.0.0.1:8091"

// newProxyFlights returns the command that lists the open requests of a proxy.
func newProxyFlights() *cobra.Command {
	var admin string
	var asJSON bool
	c := &cobra.Command{
		Use: "flights", Short: "List the requests whose outcome is unknown", Args: cobra.NoArgs,
		Long: "List the requests that a running gate proxy has forwarded and that the service has not answered. The\n" +
			"proxy no longer waits for those in state closed; their resources stay closed until reopened.",
		RunE: func(c *cobra.Command, _ []string) error {
			body, err := askProxy(c, http.MethodGet, admin, "/flights", nil)
			if err != nil {
				return err
			}
			if asJSON {
				_, err := c.OutOrStdout().Write(body)
				return err
			}
			var flights []proxy.Flight
			if err := json.Unmarshal(body, &flights); err != nil {
				return fmt.Errorf("decode the list of requests: %w", err)
			}
			return printFlights(c.OutOrStdout(), flights)
		},
	}
	c.Flags().StringVar(&admin, "admin", adminDefault, "admin address of the proxy")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func printFlights(w io.Writer, flights []proxy.Flight) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RESOURCE\tTOKEN\tSTATE\tSENT\tREQUEST\tREASON")
	for _, f := range flights {
		state := "in flight"
		if f.Closed {
			state = "closed"
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s %s\t%s\n", f.Resource, f.Token, state, f.Sent.Format(time.RFC3339), f.Method, f.Path, f.Reason)
	}
	return table.Flush()
}

// newProxyReopen returns the command that reopens a closed resource.
func newProxyReopen() *cobra.Command {
	var admin string
	var abandon bool
	c := &cobra.Command{
		Use: "reopen RESOURCE", Short: "Reopen a resource that an unanswered request has closed", Args: exactly(1, "the name of a resource"),
		Long: "Reopen a resource after you have made sure that the service is no longer processing the unanswered\n" +
			"request; restart the service if in doubt. If the request still writes, it can overwrite the data of a\n" +
			"newer holder. The mark does not change.",
		RunE: func(c *cobra.Command, args []string) error {
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
			_, err = fmt.Fprintf(c.OutOrStdout(), "reopened %s\n", resource)
			return err
		},
	}
	c.Flags().StringVar(&admin, "admin", adminDefault, "admin address of the proxy")
	c.Flags().BoolVar(&abandon, "abandon", false, "also abandon a request that is still in progress")
	return c
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
