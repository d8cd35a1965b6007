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

// adminDefault is where the operator's side of a gate proxy is.
const adminDefault = "127.0.0.1:8091"

// newProxyFlights lists what a running gate proxy waits for.
func newProxyFlights() *cobra.Command {
	var admin string
	var asJSON bool
	c := &cobra.Command{
		Use: "flights", Short: "List requests whose outcome is not known", Args: cobra.NoArgs,
		Long: "Lists the requests that a running gate proxy has sent and whose end it has not seen. Those\n" +
			"that are closed will not be answered any more; their resources stay closed until reopened.",
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
				return fmt.Errorf("read the flights: %w", err)
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

// newProxyReopen is an operator's decision about a closed resource.
func newProxyReopen() *cobra.Command {
	var admin string
	var abandon bool
	c := &cobra.Command{
		Use: "reopen RESOURCE", Short: "Reopen a resource that an unanswered request has closed", Args: cobra.ExactArgs(1),
		Long: "Reopening is your word that the request is over: that the service is not, and will not be,\n" +
			"at work on it any more. Look at the service first (restart it if in doubt). If the request\n" +
			"writes after all, it can overwrite what a newer holder wrote. The mark stays where it is.",
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
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s is open\n", resource)
			return err
		},
	}
	c.Flags().StringVar(&admin, "admin", adminDefault, "admin address of the proxy")
	c.Flags().BoolVar(&abandon, "abandon", false, "give up a request that is still in flight")
	return c
}

// askProxy calls the admin side of a gate proxy.
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
		return nil, fmt.Errorf("reach the gate proxy: %w; is it running, and is --admin the address it was given?", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read the gate proxy's answer: %w", err)
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
