package tracing_test

import (
	"context"
	"fmt"
	"log"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore/memory"
	"github.com/leased-project/leased/storagegate/memgate"
	"github.com/leased-project/leased/telemetry/tracing"
)

func Example() {
	ctx := context.Background()
	spans := tracetest.NewSpanRecorder() // a program uses an exporter, such as otlptracehttp
	tracer := tracing.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)))

	backend, err := memory.New()
	if err != nil {
		log.Fatal(err)
	}
	client, err := lease.New(backend, lease.WithHooks(tracer.Hooks())) // client.Dial in a program
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	gate := tracing.Gate(tracer, memgate.New[int](fencing.Rule{}))

	err = client.Do(ctx, "counter", func(ctx context.Context, l *lease.Lease) error {
		return gate.Do(ctx, l.GateResource(), l.Token(), func(value *int) error { *value++; return nil })
	})
	if err != nil {
		log.Fatal(err)
	}
	first := spans.Ended()[0].SpanContext().TraceID()
	for _, span := range spans.Ended() {
		fmt.Println(span.Name(), "in the same trace:", span.SpanContext().TraceID() == first)
	}
	// Output:
	// lease.Acquire in the same trace: true
	// gate.Write in the same trace: true
}
