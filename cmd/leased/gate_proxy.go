package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/httpgate"
	"github.com/leased-project/leased/storagegate/httpgate/proxy"
)

// proxyFlags are what the command line says about a gate proxy.
type proxyFlags struct {
	listen, admin, upstream string
	header                  string
	paths                   []string
	maxJump                 uint64
	drain                   time.Duration
	config                  proxy.Config
}

// newGateProxy runs the reverse proxy that refuses stale writes.
func newGateProxy() *cobra.Command {
	var flags proxyFlags
	c := &cobra.Command{
		Use: "proxy --upstream URL --journal FILE (--resource-path RULE | --resource-header NAME)", Short: "Refuse stale writes in front of an HTTP service",
		Long: "Forwards requests to a service that cannot be changed, and refuses writes whose\n" +
			"Fencing-Token is older than the newest one seen for their resource (412).\n\n" +
			"Of the writes to one resource one is under way at a time. If the service does not answer\n" +
			"one, it may still be at work on it: the resource then stays closed (503) until the answer\n" +
			"comes or an operator reopens it, also over a restart. That is the price of a gate outside\n" +
			"the storage; where you can, use one inside it.\n\n" +
			"A rule is PATTERN=NAME: /orders/{id}/{rest...}=orders/{id}. A write whose path matches no\n" +
			"rule is refused.",
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
	f.StringVar(&flags.listen, "listen", "127.0.0.1:8090", "address that clients connect to")
	f.StringVar(&flags.admin, "admin", adminDefault, "loopback address for operators")
	f.StringVar(&flags.upstream, "upstream", "", "the service, such as http://127.0.0.1:8080")
	f.StringVar(&flags.config.Journal, "journal", "", "file with the marks and the requests in flight")
	f.StringArrayVar(&flags.paths, "resource-path", nil, "rule that names the resource by the path, PATTERN=NAME; may be repeated")
	f.StringVar(&flags.header, "resource-header", "", "request header that names the resource")
	f.Uint64Var(&flags.maxJump, "max-jump", uint64(fencing.DefaultMaxJump), "largest jump of a token above the mark, 0 for no bound")
	f.DurationVar(&flags.config.AnswerTimeout, "answer-timeout", 30*time.Second, "how long a client waits for the service's answer")
	f.DurationVar(&flags.config.WaitTimeout, "wait-timeout", 30*time.Second, "how long a request waits for its turn")
	f.DurationVar(&flags.config.ReadTimeout, "read-timeout", 30*time.Second, "how long a client may keep a part of a long answer waiting")
	f.DurationVar(&flags.drain, "drain-timeout", 30*time.Second, "how long to wait for answers when the proxy is stopped")
	f.Int64Var(&flags.config.Buffer, "buffer", 1<<20, "bytes of a body that are read before a request takes its turn")
	f.BoolVar(&flags.config.GateReads, "gate-reads", false, "gate GET, HEAD, OPTIONS and TRACE like writes")
	f.IntSliceVar(&flags.config.UnknownStatus, "unknown-status", proxy.DefaultUnknownStatus(), "answers that do not say whether the request is over")
	c.AddCommand(newProxyFlights(), newProxyReopen())
	return c
}

// complete checks the flags and turns them into a configuration.
func (f *proxyFlags) complete() error {
	if f.upstream == "" {
		return errors.New("--upstream is required: the URL of the service, such as http://127.0.0.1:8080")
	}
	upstream, err := url.Parse(f.upstream)
	if err != nil || upstream.Host == "" || upstream.Scheme != "http" && upstream.Scheme != "https" {
		return fmt.Errorf("--upstream %q is no http or https URL; write it as http://127.0.0.1:8080", f.upstream)
	}
	if f.config.Journal == "" {
		return errors.New("--journal is required: a file on a disk that outlives restarts, since a proxy without its marks refuses nothing")
	}
	switch {
	case len(f.paths) > 0 && f.header != "":
		return errors.New("--resource-path and --resource-header exclude each other; give one")
	case f.header != "":
		f.config.Resource = httpgate.FromHeader(f.header)
	case len(f.paths) > 0:
		if f.config.Resource, err = httpgate.FromPath(f.paths...); err != nil {
			return fmt.Errorf("--resource-path: %w", err)
		}
	default:
		return errors.New("--resource-path or --resource-header is required: the proxy must know what a request writes to")
	}
	for name, timeout := range map[string]time.Duration{"answer-timeout": f.config.AnswerTimeout, "wait-timeout": f.config.WaitTimeout,
		"read-timeout": f.config.ReadTimeout, "drain-timeout": f.drain} {
		if timeout <= 0 {
			return fmt.Errorf("--%s %v must be above 0", name, timeout)
		}
	}
	if f.config.Buffer <= 0 {
		return fmt.Errorf("--buffer %d must be above 0", f.config.Buffer)
	}
	if fencing.Token(f.maxJump) > fencing.MaxToken {
		return fmt.Errorf("--max-jump %d is above the largest token %d", f.maxJump, fencing.MaxToken)
	}
	for _, status := range f.config.UnknownStatus {
		if status < 200 || status > 599 {
			return fmt.Errorf("--unknown-status %d is no status of an answer", status)
		}
	}
	if f.config.UnknownStatus == nil {
		f.config.UnknownStatus = []int{} // none, not the default
	}
	f.config.Now = time.Now
	f.config.Upstream, f.config.Rule = upstream, fencing.Rule{MaxJump: fencing.Token(f.maxJump)}
	return loopback(f.admin)
}

// loopback refuses an admin address that others could reach: it asks nobody who
// they are.
func loopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("--admin %q: %w; write it as 127.0.0.1:8091", addr, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--admin %q is no loopback address; everyone who reaches it can reopen resources", addr)
	}
	return nil
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
	p, err := proxy.Open(f.config)
	if err != nil {
		return err
	}
	const headers = 10 * time.Second
	public := &http.Server{Handler: p, ReadHeaderTimeout: headers}
	admin := &http.Server{Handler: p.Admin(), ReadHeaderTimeout: headers}
	ended := make(chan error, 2)
	go func() { ended <- public.Serve(front) }()
	go func() { ended <- admin.Serve(back) }()
	fmt.Fprintf(c.OutOrStdout(), "gate proxy: listen http://%s admin http://%s upstream %s\n", front.Addr(), back.Addr(), f.config.Upstream)
	select {
	case <-ctx.Done():
	case err = <-ended:
	case <-p.Failed():
		err = fmt.Errorf("%w: look at the disk of %s, then start the proxy again", proxy.ErrJournal, f.config.Journal)
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.drain)
	defer cancel()
	return errors.Join(err, ignore(public.Shutdown(drain), context.DeadlineExceeded), p.Close(drain), admin.Close())
}

// ignore drops an error that is no reason to fail: what is still in flight when
// the time is up is written down, and its resource closed at the next start.
func ignore(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}
