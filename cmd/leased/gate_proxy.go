package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/leased-project/leased/cmd/leased/internal/gateproxy"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/fencing/signature"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate/httpgate"
	"github.com/leased-project/leased/telemetry/metrics"
	"github.com/leased-project/leased/telemetry/refusals"
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
	config                  gateproxy.Config
}

func setUpGateProxy(c *cobra.Command) {
	var flags proxyFlags
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := flags.complete(); err != nil {
			return usageError(err)
		}
		return flags.run(c)
	}
	f := c.Flags()
	f.StringVar(&flags.listen, "listen", "127.0.0.1:8090", "listen address for clients")
	f.StringVar(&flags.admin, "admin", adminDefault, "listen address for operators; a loopback address")
	f.StringVar(&flags.metrics, "metrics-listen", "", "listen address for Prometheus, which serves /metrics only, "+
		"without authentication; none if empty")
	f.BoolVar(&flags.report, "report", false, "report refused writes to the service at --endpoint")
	flags.access = addAccess(c)
	f.StringVar(&flags.upstream, "upstream", "", "URL of the service, such as http://127.0.0.1:8080 (required)")
	f.StringVar(&flags.config.Journal, "journal", "", "file for the marks and the requests in progress (required)")
	f.StringArrayVar(&flags.paths, "resource-path", nil, "rule PATTERN=NAME that derives the resource name from the "+
		"path; can be repeated")
	f.StringVar(&flags.header, "resource-header", "", "request header with the resource name")
	f.StringVar(&flags.verifyKeys, "verify-keys", "", "PEM file with the public keys of the lock service; accept only "+
		"signed tokens")
	f.Uint64Var(&flags.maxJump, "max-jump", uint64(fencing.DefaultMaxJump), "largest allowed difference between a "+
		"token and the mark; 9007199254740991 allows any")
	f.DurationVar(&flags.config.AnswerTimeout, "answer-timeout", 30*time.Second,
		"how long a client waits for the answer of the service")
	f.DurationVar(&flags.config.WaitTimeout, "wait-timeout", 30*time.Second, "how long a request waits for earlier "+
		"writes to its resource")
	f.DurationVar(&flags.config.ReadTimeout, "read-timeout", 30*time.Second, "how long a client may take to read a "+
		"part of the answer")
	f.DurationVar(&flags.drain, "drain-timeout", 30*time.Second, "how long to wait for answers when the proxy stops")
	f.Int64Var(&flags.config.Buffer, "buffer", 1<<20, "bytes of a request body that the proxy reads before it forwards "+
		"the request")
	f.BoolVar(&flags.config.GateReads, "gate-reads", false, "check GET, HEAD, OPTIONS and TRACE like writes")
	f.IntSliceVar(&flags.config.UnknownStatus, "unknown-status", gateproxy.DefaultUnknownStatus(),
		"status codes after which the service may still be processing the request")
}

// complete checks the flags and fills in the configuration.
func (f *proxyFlags) complete() (err error) {
	if f.config.Upstream, err = url.Parse(f.upstream); err != nil {
		return fmt.Errorf("--upstream: %w", err)
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
	}
	slog.SetDefault(newLogger(&settings.Settings{}))
	f.config.Rule, f.config.Log, f.config.Now = fencing.Rule{MaxJump: fencing.Token(f.maxJump)}, slog.Default(), time.Now
	if err := f.config.Validate(); err != nil {
		return err
	}
	if f.drain <= 0 {
		return fmt.Errorf("--drain-timeout (%v) must be above 0", f.drain)
	}
	if f.verifyKeys != "" {
		keys, err := readPublicKeys(f.verifyKeys)
		if err != nil {
			return fmt.Errorf("--verify-keys: %w", err)
		}
		if f.config.Verifier, err = signature.NewVerifier(time.Now, keys...); err != nil {
			return fmt.Errorf("--verify-keys: %w", err)
		}
	}
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
func (f *proxyFlags) waitForEnd(ctx context.Context, c *cobra.Command, p *gateproxy.Proxy, ended <-chan error) error {
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
			return fmt.Errorf("%w: check the disk of %s, then restart the proxy", gateproxy.ErrJournal, f.config.Journal)
		case <-reload:
			keys, err := readPublicKeys(f.verifyKeys)
			if err == nil {
				err = f.config.Verifier.Replace(keys...)
			}
			if err != nil {
				fmt.Fprintf(c.ErrOrStderr(), "gate proxy: --verify-keys: %v; the old keys stay in effect\n", err)
				continue
			}
			ids := strings.Join(f.config.Verifier.KeyIDs(), ", ")
			fmt.Fprintf(c.OutOrStdout(), "gate proxy: verifies signatures of %s\n", ids)
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
	p, err := gateproxy.Open(f.config)
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
	fmt.Fprintf(c.OutOrStdout(), "gate proxy: listen http://%s admin http://%s upstream %s\n", front.Addr(), back.Addr(),
		f.config.Upstream)
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

// proxyGate is the kind of gate in the metrics of the proxy and in its reports.
const proxyGate = "http"

// proxyTelemetry exports the decisions of a gate proxy, and reports refused writes to the
// service if it was told to.
type proxyTelemetry struct {
	registry *prometheus.Registry
	reporter *refusals.Reporter // nil if the proxy does not report
	client   *lease.Client
	backend  *remote.Backend
}

// newProxyTelemetry returns the telemetry of a proxy. It does not connect to the service:
// the proxy also works while the service is down.
func newProxyTelemetry(report bool, access *access) (*proxyTelemetry, error) {
	t := &proxyTelemetry{registry: prometheus.NewRegistry()}
	t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if !report {
		return t, nil
	}
	addresses, config, own, err := access.service()
	if err != nil {
		return nil, err
	}
	if t.backend, err = remote.New(addresses, remote.Config{TLS: config, Secret: own}); err != nil {
		return nil, usageError(err)
	}
	host, _ := os.Hostname()
	if t.client, err = lease.New(t.backend, lease.WithName("gate proxy at "+host)); err != nil {
		return nil, errors.Join(err, t.backend.Close())
	}
	t.reporter = refusals.New(t.client)
	return t, nil
}

// attach begins to observe a proxy that has served no request yet.
func (t *proxyTelemetry) attach(p *gateproxy.Proxy) {
	decisions := metrics.New()
	t.registry.MustRegister(decisions)
	p.Audit(decisions.Audit(proxyGate))
	if t.reporter != nil {
		t.exportReports()
		p.Audit(t.reporter.Audit(proxyGate))
	}
}

// exportReports exports the results of the reports.
func (t *proxyTelemetry) exportReports() {
	for result, count := range map[string]func(refusals.Counts) uint64{
		"sent":     func(c refusals.Counts) uint64 { return c.Sent },
		"repeated": func(c refusals.Counts) uint64 { return c.Repeated },
		"dropped":  func(c refusals.Counts) uint64 { return c.Dropped },
		"failed":   func(c refusals.Counts) uint64 { return c.Failed },
	} {
		t.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "leased_gate_reports_total",
			Help:        "Refused writes, by the result of the report to the service.",
			ConstLabels: prometheus.Labels{"result": result}},
			func() float64 { return float64(count(t.reporter.Counts())) }))
	}
}

// serve serves the metrics at /metrics, and next at all other paths.
func (t *proxyTelemetry) serve(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{}))
	mux.Handle("/", next)
	return mux
}

// close sends the reports that wait and closes the connection to the service. It does
// not wait long: reports are hints.
func (t *proxyTelemetry) close(ctx context.Context) {
	if t.reporter == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_ = t.reporter.Flush(ctx)
	_ = t.client.Close(ctx)
	_ = t.backend.Close()
}
