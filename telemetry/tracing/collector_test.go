package tracing_test

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
)

// collector receives spans by OTLP over HTTP, as a real collector does.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []span
}

// span is a received span.
type span struct {
	name, traceID, id, parent string
	instance                  string // the member that made it
	values                    map[string]any
	events                    []string
	links                     int
}

func startCollector(t testing.TB) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(c.receive))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) receive(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unzipped
	}
	data, err := io.ReadAll(body)
	var request collectorpb.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(data, &request) != nil {
		http.Error(w, "not an export of traces", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.ResourceSpans {
		instance, _ := values(resource.Resource.GetAttributes())["service.instance.id"].(string)
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				got := span{name: s.Name, traceID: hex.EncodeToString(s.TraceId), id: hex.EncodeToString(s.SpanId),
					parent:   hex.EncodeToString(s.ParentSpanId),
					instance: instance, values: values(s.Attributes), links: len(s.Links)}
				for _, e := range s.Events {
					got.events = append(got.events, e.Name)
				}
				c.spans = append(c.spans, got)
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// values returns attributes by key.
func values(list []*commonpb.KeyValue) map[string]any {
	m := map[string]any{}
	for _, kv := range list {
		switch v := kv.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			m[kv.Key] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			m[kv.Key] = v.IntValue
		}
	}
	return m
}

// find returns the spans for which match holds.
func (c *collector) find(match func(span) bool) (found []span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if match(s) {
			found = append(found, s)
		}
	}
	return found
}

// await returns the only span with this name in a trace. It ignores calls that had to be
// repeated because the leader has changed.
func (c *collector) await(t testing.TB, traceID, name string) span {
	t.Helper()
	return c.only(t, "a span "+name+" in trace "+traceID, func(s span) bool {
		switch s.values["leased.outcome"] {
		case "not-leader", "unavailable", "uncertain":
			return false
		}
		return s.traceID == traceID && s.name == name
	})
}

// child returns the only span with this name below a span.
func (c *collector) child(t testing.TB, parent span, name string) span {
	t.Helper()
	return c.only(t, "a span "+name+" below "+parent.name, func(s span) bool {
		return s.traceID == parent.traceID && s.parent == parent.id && s.name == name
	})
}

func (c *collector) only(t testing.TB, what string, match func(span) bool) span {
	t.Helper()
	var found []span
	testserver.Eventually(t, what, func() bool {
		found = c.find(match)
		return len(found) > 0
	})
	require.Len(t, found, 1, "%v", found)
	return found[0]
}

// newProvider returns the provider of a traced program, which exports to the collector.
func (c *collector) newProvider(t testing.TB) *sdk.TracerProvider {
	t.Helper()
	exporter, err := otlptracehttp.New(testserver.Context(t), otlptracehttp.WithEndpointURL(c.URL+"/v1/traces"))
	require.NoError(t, err)
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter, sdk.WithBatchTimeout(10*time.Millisecond)))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	return provider
}
