package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/load"
	"github.com/leased-project/leased/lease"
)

func TestBenchFlags(t *testing.T) {
	t.Parallel()
	good := func() *benchFlags {
		return &benchFlags{works: []string{"own", "contended", "hold"}, workers: 8, clients: 2, leases: 100}
	}
	works, options, err := good().validate()
	require.NoError(t, err)
	require.Equal(t, []load.Work{{Kind: load.Own, Workers: 8, Clients: 2}, {Kind: load.Contended, Workers: 8, Clients: 2},
		{Kind: load.Hold, Leases: 100, Workers: 8, Clients: 2}}, works)
	require.Empty(t, options)
	for want, change := range map[string]func(*benchFlags){
		"--workers (0) must be between 1 and 10000":     func(f *benchFlags) { f.workers = 0 },
		"--clients (9) must be between 1 and --workers": func(f *benchFlags) { f.clients = 9 },
		"--clients (0) must be between 1 and --workers": func(f *benchFlags) { f.clients = 0 },
		"--leases (7) must be at least --workers (8)":   func(f *benchFlags) { f.leases = 7 },
		"--work (fast) must be own, contended or hold":  func(f *benchFlags) { f.works = []string{"own", "fast"} },
		"--work must name a workload":                   func(f *benchFlags) { f.works = nil },
		`--mode: invalid request: mode "quick"`:         func(f *benchFlags) { f.mode = "quick" },
	} {
		f := good()
		change(f)
		_, _, err := f.validate()
		require.ErrorContains(t, err, want)
	}
	f := good()
	f.mode = "correctness"
	_, options, err = f.validate()
	require.NoError(t, err)
	require.Len(t, options, 1)
}

func TestBenchOutput(t *testing.T) {
	t.Parallel()
	result := load.Result{Pairs: 30, Elapsed: 2 * time.Second, Acquire: &load.Histogram{}, Pair: &load.Histogram{},
		Grants: []int64{20, 10}, Errors: 3, FirstError: "no leader"}
	result.Acquire.Observe(4 * time.Millisecond)
	result.Pair.Observe(8 * time.Millisecond)
	rows := []benchRow{newBenchRow(load.Own, lease.Correctness, 1, result),
		newBenchRow(load.Hold, lease.Correctness, 1, result)}
	var out bytes.Buffer
	c := &cobra.Command{}
	c.SetOut(&out)
	f := &benchFlags{output: &output{format: "table"}}
	require.NoError(t, f.print(c, rows))
	require.Regexp(t, `own +correctness +2 +1 +15 +[34]\.\d\d ms +[34]\.\d\d ms +[78]\.\d\d ms +[78]\.\d\d ms +2\.00 +3\n`,
		out.String())
	require.Regexp(t, `hold +correctness +2 +1 +15 +[34]\.\d\d ms +[34]\.\d\d ms +- +- +2\.00 +3\n`, out.String())

	out.Reset()
	f.output.format = "json"
	require.NoError(t, f.print(c, rows))
	var got struct{ Results []map[string]any }
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	require.Len(t, got.Results, 2)
	require.Equal(t, []any{"own", 15.0, 30.0, "no leader"}, []any{got.Results[0]["work"], got.Results[0]["rate"],
		got.Results[0]["pairs"], got.Results[0]["firstError"]})
	out.Reset()
	require.NoError(t, f.print(c, []benchRow{}))
	require.JSONEq(t, `{"results": []}`, out.String())
}

func TestBenchOutcome(t *testing.T) {
	t.Parallel()
	f, failed, cause := &benchFlags{}, errors.New("failed"), errors.New("interrupted")
	ctx := t.Context()
	require.NoError(t, f.outcome(ctx, []benchRow{{Work: "own", Pairs: 5}}, nil))
	require.NoError(t, f.outcome(ctx, []benchRow{{Work: "own", Pairs: 5, Errors: 1, FirstError: "lost"}}, nil))
	require.ErrorIs(t, f.outcome(ctx, nil, failed), failed)
	require.ErrorContains(t, f.outcome(ctx, []benchRow{{Work: "own", Errors: 7, FirstError: "no leader"}}, nil),
		"the workload own completed no operation: no leader")
	require.ErrorContains(t, f.outcome(ctx, []benchRow{{Work: "own"}}, nil),
		"the workload own completed no operation: the service was too slow; measure for longer with --duration")
	cancelled, cancel := context.WithCancelCause(ctx)
	cancel(cause)
	require.ErrorIs(t, f.outcome(cancelled, nil, context.Canceled), cause)
}
