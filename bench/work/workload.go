package work

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/leased-project/leased/bench/peers"
	"github.com/leased-project/leased/bench/results"
	"github.com/leased-project/leased/internal/load"
)

// params are the sizes of a measurement, such as "workers": 16.
type params = map[string]int

// workload is one of W1 to W7, which compare services, or a curve of leased over one size.
type workload struct {
	name  string
	what  string
	cases []params
	// fresh starts new servers for each measurement.
	fresh bool
	// measure fills the figures of one sample.
	measure func(ctx context.Context, b *bench, t *target, s *results.Sample) error
	// named workloads are measured only if the command line names them.
	named bool
	// kinds, if not nil, returns the services of a case. They start again for the next one.
	kinds func(program string, sizes params) []peers.Kind
}

// target is a service that is measured.
type target struct {
	kind    peers.Kind
	cluster *peers.Cluster
	open    load.Target
	holders []*child
}

// clients returns the number of clients that users of the service have.
func (t *target) clients(workers int) int {
	if t.kind.ClientPerWorker {
		return workers
	}
	return 1
}

// workloads are all workloads.
var workloads = []workload{
	{name: "W1", what: "own locks", cases: each("workers", 1, 16, 64, 256), measure: measureOwn},
	{name: "W2", what: "one lock", measure: measureContended, cases: []params{
		{"workers": 16, "processes": 1}, {"workers": 128, "processes": 1},
		{"workers": 16, "processes": 8}, {"workers": 128, "processes": 8},
	}},
	{name: "W3", what: "many leases held", cases: []params{{"leases": 100_000, "workers": 64}}, fresh: true,
		measure: measureHold},
	{name: "W4", what: "leader killed", cases: each("workers", 16), measure: measureFailover},
	{name: "W5", what: "guarded writes", cases: each("workers", 16), measure: measureOwn},
	{name: "W6", what: "clients shared by workers", measure: measureOwn, cases: []params{
		{"workers": 64, "clients": 1}, {"workers": 64, "clients": 64},
		{"workers": 256, "clients": 1}, {"workers": 256, "clients": 256},
	}},
	{name: "W7", what: "JSON API", cases: each("workers", 64), measure: measureOwn},

	{name: "exclusion", what: "no two holders at once", named: true,
		cases: each("workers", 16), measure: measureExclusion},
	{name: "waiters", what: "handoffs over the workers that want one lock", named: true,
		cases: each("waiters", 1, 10, 100, 1000, 10_000), measure: measureWaiters},
	{name: "batch", what: "operations per log entry over the workers", named: true,
		cases: each("workers", 1, 4, 16, 64, 256, 1024), measure: measureBatch},
	{name: "sessions", what: "rate and memory over the sessions", named: true,
		fresh: true,
		cases: each("sessions", 1, 10, 100, 1000, 10_000), measure: measureSessions},
	{name: "nodes", what: "efficiency mode and redsync over the Redis nodes", named: true,
		cases: each("nodes", 1, 3, 5, 7), measure: measureOwn,
		kinds: func(program string, sizes params) []peers.Kind {
			redsync := peers.Redsync(sizes["nodes"])
			redsync.Name = "redsync"
			return []peers.Kind{peers.Efficiency(program, sizes["nodes"]), redsync}
		}},
	{name: "leases", what: "rate, memory and pause by a snapshot over the leases held", named: true, fresh: true,
		cases: each("leases", 1000, 10_000, 100_000, 1_000_000), measure: measureLeases},
	{name: "profile", what: "processor time by layer", named: true,
		cases: each("workers", 1, 16, 256), measure: measureProfile},
}

func each(name string, values ...int) (cases []params) {
	for _, v := range values {
		cases = append(cases, params{name: v})
	}
	return cases
}

// Names returns the names of the workloads, with what they measure.
func Names() (names []string) {
	for _, w := range workloads {
		names = append(names, w.name+" "+w.what)
	}
	return names
}

// selected returns the workloads and cases that a list from the command line names, such
// as "W1" or "W1/256" for the case with 256 workers. An empty list selects W1 to W7.
func selected(only []string) ([]workload, error) {
	if len(only) == 0 {
		return slices.DeleteFunc(slices.Clone(workloads), func(w workload) bool { return w.named }), nil
	}
	var chosen []workload
	for _, item := range only {
		name, size, sized := strings.Cut(item, "/")
		i := slices.IndexFunc(workloads, func(w workload) bool { return w.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no workload %q: choose from %s", name, strings.Join(Names(), ", "))
		}
		w := workloads[i]
		w.cases = slices.Clone(w.cases)
		if sized {
			w.cases = slices.DeleteFunc(w.cases, func(p params) bool { return fmt.Sprint(p["workers"]) != size })
			if len(w.cases) == 0 {
				return nil, fmt.Errorf("%s has no case with %s workers: choose from %s", name, size, sizesOf(workloads[i]))
			}
		}
		if at := slices.IndexFunc(chosen, func(c workload) bool { return c.name == name }); at >= 0 {
			chosen[at].cases = append(chosen[at].cases, w.cases...)
		} else {
			chosen = append(chosen, w)
		}
	}
	return chosen, nil
}

// sizesOf lists the numbers of workers of a workload.
func sizesOf(w workload) string {
	var sizes []string
	for _, p := range w.cases {
		if size := fmt.Sprint(p["workers"]); !slices.Contains(sizes, size) {
			sizes = append(sizes, size)
		}
	}
	return strings.Join(sizes, ", ")
}

// measures reports whether a workload is measured on a kind of service.
func (w workload) measures(kind peers.Kind) bool {
	all := kind.Workloads
	if all == nil {
		all = []string{"W1", "W2"}
	}
	return slices.Contains(all, w.name) || w.name == "exclusion" && slices.Contains(all, "W2")
}
