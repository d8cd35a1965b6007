package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/httpgate"
	"github.com/leased-project/leased/storagegate/httpgate/proxy"
)

// proxyFlags are the flags of gate proxy.
type proxyFlags struct {
	listen, admin, upstream string
	metrics                 string
	report                  bool
	access                  *access
	header                  string
	verifyKeys              string
	paths                   []string
	maxJump                 uint64
	drain                   time.Duration
	config                  proxy.Config
}

// newGateProxy returns the command that runs the gate proxy.
func newGateProxy() *cobra.Command {
	var flags proxyFlags
	c := &cobra.Command{
		Use: "proxy --upstream URL --journal FILE (--resource-path RULE | --resource-header NAME)", Short: "Refuse stale writes in front of an HTTP service",
		Long: "Forward requests to a service that cannot be changed, and refuse writes (412) whose Fencing-Token is\n" +
			"older than the newest one seen for their resource.\n\n" +
			"The proxy forwards one write per resource at a time. If the service does not answer a write, it may\n" +
			"still be processing it: the resource then stays closed (503), even across a restart, until the answer\n" +
			"arrives or an operator reopens it. A gate inside the storage does not have this problem; use one where\n" +
			"you can.\n\n" +
			"With --verify-keys the proxy accepts only tokens that the lock service has signed. SIGHUP reads the keys\n" +
			"again.\n\n" +
			"The admin address serves metrics for Prometheus at /metrics, and so does --metrics-listen. With --report\n" +
			"the proxy reports refused writes to the service at --endpoint, whose dashboard shows them. A user needs\n" +
			"the right to acquire the locks. The proxy does not depend on the service: reports are lost while it is\n" +
			"down.\n\n" +
			"A rule maps paths to resource names, as PATTERN=NAME: /orders/{id}/{rest...}=orders/{id}. Writes whose\n" +
			"path matches no rule are refused.",
		Example: "  leased gate proxy --upstream http://127.0.0.1:8080 --journal /var/lib/leased/orders.db \\\n" +
			"    --resource-path '/orders/{id}/{rest...}=orders/{id}'\n" +
			"  leased gate proxy flights\n" +
			"  leased gate proxy reopen orders/42",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := flags.complete(); err != nil {
				return usageError(err)
			}
			return flags.run(c)
		},
	}
	f := c.Flags()
	f.StringVar(&flags.listen, "listen", "127.0.0.1:8090", "listen address for clients")
	f.StringVar(&flags.admin, "admin", adminDefault, "listen address for operators; a loopback address")
	f.StringVar(&flags.metrics, "metrics-listen", "", "listen address for Prometheus, which serves /metrics only, without authentication; none if empty")
	f.BoolVar(&flags.report, "report", false, "report refused writes to the service at --endpoint")
	flags.access = addAccess(c)
	f.StringVar(&flags.upstream, "upstream", "", "URL of the service, such as http://127.0.0.1:8080 (required)")
	f.StringVar(&flags.config.Journal, "journal", "", "file for the marks and the requests in progress (required)")
	f.StringArrayVar(&flags.paths, "resource-path", nil, "rule PATTERN=NAME that derives the resource name from the path; can be repeated")
	f.StringVar(&flags.header, "resource-header", "", "request header with the resource name")
	f.StringVar(&flags.verifyKeys, "verify-keys", "", "PEM file with the public keys of the lock service; accept only signed tokens")
	f.Uint64Var(&flags.maxJump, "max-jump", uint64(fencing.DefaultMaxJump), "largest allowed difference between a token and the mark; 9007199254740991 allows any")
	f.DurationVar(&flags.config.AnswerTimeout, "answer-timeout", 30*time.Second, "how long a client waits for the answer of the service")
	f.DurationVar(&flags.config.WaitTimeout, "wait-timeout", 30*time.Second, "how long a request waits for earlier writes to its resource")
	f.DurationVar(&flags.config.ReadTimeout, "read-timeout", 30*time.Second, "how long a client may take to read a part of the answer")
	f.DurationVar(&flags.drain, "drain-timeout", 30*time.Second, "how long to wait for answers when the proxy stops")
	f.Int64Var(&flags.config.Buffer, "buffer", 1<<20, "bytes of a request body that the proxy reads before it forwards the request")
	f.BoolVar(&flags.config.GateReads, "gate-reads", false, "check GET, HEAD, OPTIONS and TRACE like writes")
	f.IntSliceVar(&flags.config.UnknownStatus, "unknown-status", proxy.DefaultUnknownStatus(), "status codes after which the service may still be processing the request")
	c.AddCommand(newProxyFlights(), newProxyReopen())
	return c
}

// complete checks the flags and fills in the configuration.
func (f *proxyFlags) complete() error {
	if f.upstream == "" {
		return errors.New("--upstream is required: the URL of the service, such as http://127.0.0.1:8080")
	}
	upstream, err := url.Parse(f.upstream)
	if err != nil || upstream.Host == "" || upstream.Scheme != "http" && upstream.Scheme != "https" {
		return fmt.Errorf("--upstream %q is not an http or https URL such as http://127.0.0.1:8080", f.upstream)
	}
	if f.config.Journal == "" {
		return errors.New("--journal is required: a file on persistent storage, because a proxy that has lost its marks refuses nothing")
	}
	switch {
	case len(f.paths) > 0 && f.header != "":
		return errors.New("--resource-path and --resource-header cannot be combined")
	case f.header != "":
		f.config.Resource = httpgate.FromHeader(f.header)
	case len(f.paths) > 0:
		if f.config.Resource, err = httpgate.FromPath(f.paths...); err != nil {
			return fmt.Errorf("--resource-path: %w", err)
		}
	default:
		return errors.New("--resource-path or --resource-header is required: the proxy must know the resource of a request")
	}
	for name, timeout := range map[string]time.Duration{"answer-timeout": f.config.AnswerTimeout, "wait-timeout": f.config.WaitTimeout,
		"read-timeout": f.config.ReadTimeout, "drain-timeout": f.drain} {
		if timeout <= 0 {
			return fmt.Errorf("--%s (%v) must be above 0", name, timeout)
		}
	}
	if f.config.Buffer <= 0 {
		return fmt.Errorf("--buffer (%d) must be above 0", f.config.Buffer)
	}
	if !fencing.Token(f.maxJump).Valid() {
		return fmt.Errorf("--max-jump (%d) must be from 1 to %d, the largest token", f.maxJump, fencing.MaxToken)
	}
	for _, status := range f.config.UnknownStatus {
		if status < 200 || status > 599 {
			return fmt.Errorf("--unknown-status (%d) must be from 200 to 599", status)
		}
	}
	if f.config.UnknownStatus == nil {
		f.config.UnknownStatus = []int{} // none, not the default
	}
	f.config.Now = time.Now
	if f.verifyKeys != "" {
		keys, err := readPublicKeys(f.verifyKeys)
		if err != nil {
			return fmt.Errorf("--verify-keys: %w", err)
		}
		if f.config.Verifier, err = fencing.NewVerifier(time.Now, keys...); err != nil {
			return fmt.Errorf("--verify-keys: %w", err)
		}
	}
	f.config.Upstream, f.config.Rule = upstream, fencing.Rule{MaxJump: fencing.Token(f.maxJump)}
	return loopback(f.admin)
}

// loopback refuses an admin address that other hosts can reach: the admin API has
// no authentication.
func loopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("--admin %q: %w; give HOST:PORT, such as 127.0.0.1:8091", addr, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--admin %q must be a loopback address: everyone who reaches it can reopen resources", addr)
	}
	return nil
}

// waitForEnd waits until a signal or a failure ends the proxy. On SIGHUP it reads the
// keys again.
func (f *proxyFlags) waitForEnd(ctx context.Context, c *cobra.Command, p *proxy.Proxy, ended <-chan error) error {
	var reload chan os.Signal
	if f.config.Verifier != nil {
		reload = make(chan os.Signal, 1)
		signal.Notify(reload, syscall.SIGHUP)
		defer signal.Stop(reload)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case <-p.Failed():
			return fmt.Errorf("%w: check the disk of %s, then restart the proxy", proxy.ErrJournal, f.config.Journal)
		case <-reload:
			keys, err := readPublicKeys(f.verifyKeys)
			if err == nil {
				err = f.config.Verifier.Replace(keys...)
			}
			if err != nil {
				fmt.Fprintf(c.ErrOrStderr(), "gate proxy: --verify-keys: %v; the old keys stay in effect\n", err)
				continue
			}
			fmt.Fprintf(c.OutOrStdout(), "gate proxy: verifies signatures of %s\n", strings.Join(f.config.Verifier.KeyIDs(), ", "))
		}
	}
}

func (f *proxyFlags) run(c *cobra.Command) error {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	front, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	back, err := net.Listen("tcp", f.admin)
	if err != nil {
		return fmt.Errorf("--admin: %w", err)
	}
	telemetry, err := newProxyTelemetry(f.report, f.access)
	if err != nil {
		return err
	}
	p, err := proxy.Open(f.config)
	if err != nil {
		return err
	}
	telemetry.attach(p)
	const headers = 10 * time.Second
	public := &http.Server{Handler: p, ReadHeaderTimeout: headers}
	admin := &http.Server{Handler: telemetry.serve(p.Admin()), ReadHeaderTimeout: headers}
	ended := make(chan error, 3)
	if f.metrics != "" {
		scraped, err := net.Listen("tcp", f.metrics)
		if err != nil {
			return fmt.Errorf("--metrics-listen: %w", err)
		}
		server := &http.Server{Handler: telemetry.serve(http.NotFoundHandler()), ReadHeaderTimeout: headers}
		defer server.Close()
		go func() { ended <- server.Serve(scraped) }()
	}
	go func() { ended <- public.Serve(front) }()
	go func() { ended <- admin.Serve(back) }()
	fmt.Fprintf(c.OutOrStdout(), "gate proxy: listen http://%s admin http://%s upstream %s\n", front.Addr(), back.Addr(), f.config.Upstream)
	err = f.waitForEnd(ctx, c, p, ended)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.drain)
	defer cancel()
	stopped := public.Shutdown(drain)
	if errors.Is(stopped, context.DeadlineExceeded) {
		stopped = nil // the next start closes the resources of the requests that are still in progress
	}
	closed := p.Close(drain)
	telemetry.close(drain)
	return errors.Join(err, stopped, closed, admin.Close())
}
