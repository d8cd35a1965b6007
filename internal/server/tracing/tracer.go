package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	// scope names the instrumentation in the exported spans.
	scope = "github.com/leased-project/leased/internal/server"
	// defaultPath is the path of OTLP over HTTP at an endpoint without a path.
	defaultPath = "/v1/traces"
	// exportTimeout bounds one export. Spans of a failed export are dropped.
	exportTimeout = 5 * time.Second
	// batchTimeout is the maximum time that a span waits for others.
	batchTimeout = time.Second
	// closeTimeout bounds the export of the last spans.
	closeTimeout = 3 * time.Second
	// maxAttribute bounds the text of an attribute: callers choose the names of locks.
	maxAttribute = 1024
)

// ErrConfig reports a setting of a Config that cannot work.
var ErrConfig = errors.New("invalid tracing configuration")

// Config configures a Tracer.
type Config struct {
	// Endpoint is the URL of an OTLP/HTTP collector, such as http://127.0.0.1:4318. The
	// path is /v1/traces unless the URL has one.
	Endpoint string
	// Sample is the fraction of the calls that are traced, from 0 to 1. It applies to calls
	// without a traceparent; the others follow the decision of their caller.
	Sample float64
	// Member is the id of this member, and Version the version of the program.
	Member, Version string
	Logger          *slog.Logger
}

// Validate returns an error that matches ErrConfig for settings that cannot work.
func (c Config) Validate() error {
	_, err := c.endpoint()
	if err == nil && !(c.Sample >= 0 && c.Sample <= 1) {
		err = fmt.Errorf("%w: the sampled fraction (%v) must be from 0 to 1", ErrConfig, c.Sample)
	}
	return err
}

// endpoint returns the URL of the collector, with a path.
func (c Config) endpoint() (string, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%w: endpoint (%s) must be the URL of an OTLP/HTTP collector, such as http://127.0.0.1:4318",
			ErrConfig, c.Endpoint)
	}
	if u.User != nil {
		return "", fmt.Errorf("%w: endpoint (%s) must not contain a password; give it in OTEL_EXPORTER_OTLP_HEADERS",
			ErrConfig, u.Redacted())
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = defaultPath
	}
	return u.String(), nil
}

// Tracer makes spans and exports them in the background. A nil Tracer traces nothing. All
// methods may be called concurrently.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// Open returns a Tracer. Neither Open nor a call waits for the collector. Spans are dropped
// while the collector does not accept them.
func Open(config Config) (*Tracer, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	endpoint, _ := config.endpoint() // Validate has checked it
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(endpoint),
		otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}))
	if err != nil {
		return nil, fmt.Errorf("%w: endpoint (%s): %w", ErrConfig, config.Endpoint, err)
	}
	about := resource.NewSchemaless(attribute.String("service.name", "leased"), attribute.String("service.instance.id",
		config.Member),
		attribute.String("service.version", config.Version))
	limits := sdk.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxAttribute
	provider := sdk.NewTracerProvider(sdk.WithResource(about), sdk.WithRawSpanLimits(limits),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(config.Sample))),
		sdk.WithBatcher(&loggingExporter{SpanExporter: exporter, endpoint: config.Endpoint, logger: config.Logger},
			sdk.WithBatchTimeout(batchTimeout)))
	return &Tracer{provider: provider, tracer: provider.Tracer(scope)}, nil
}

// Close exports the remaining spans, for a few seconds at most.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("export the last spans: %w", err)
	}
	return nil
}

// loggingExporter logs once that the collector accepts no spans, and once that it accepts
// them again.
type loggingExporter struct {
	sdk.SpanExporter
	endpoint string
	logger   *slog.Logger
	failing  atomic.Bool
}

// ExportSpans exports spans. An error is logged and not returned, because the SDK would log
// each one.
func (e *loggingExporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !e.failing.Swap(true):
		e.logger.Warn("cannot export traces; spans are dropped until the collector accepts them", "endpoint", e.endpoint,
			"error", err)
	case err == nil && e.failing.Swap(false):
		e.logger.Info("exporting traces again", "endpoint", e.endpoint)
	}
	return nil
}
