package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/leased-project/leased/bench/results"
)

// benchmark is the values of a Go benchmark, by unit.
type benchmark struct {
	pkg, name string
	values    map[string][]float64
}

// Units of the benchmarks of gates.
const (
	latencyRatio    = "latency-ratio"
	throughputRatio = "throughput-ratio"
	gatedNanos      = "gated-ns/write"
	plainNanos      = "ungated-ns/write"
)

// processors is the end of a benchmark's name.
var processors = regexp.MustCompile(`-\d+$`)

// readBenchmarks reads the output of go test -bench. A benchmark that ran several times has several values.
func readBenchmarks(file string) (all []benchmark, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pkg := ""
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[0] == "pkg:" {
			_, pkg, _ = strings.Cut(fields[1], "leased-project/leased/")
		}
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := processors.ReplaceAllString(strings.TrimPrefix(fields[0], "Benchmark"), "")
		if n := len(all); n == 0 || all[n-1].name != name || all[n-1].pkg != pkg {
			all = append(all, benchmark{pkg, name, map[string][]float64{}})
		}
		values := all[len(all)-1].values
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("read %s: %q is not the result of a benchmark", file, strings.TrimSpace(line))
			}
			values[fields[i+1]] = append(values[fields[i+1]], v)
		}
	}
	return all, nil
}

// gateTable returns the benchmarks that compare a gated write with a plain one.
func (d *document) gateTable() string {
	micros := func(v float64) string { return results.Number(v / 1000) }
	var rows [][]string
	for _, b := range d.benchmarks {
		if len(b.values[latencyRatio]) > 0 {
			rows = append(rows, []string{"`" + strings.TrimPrefix(b.pkg, "storagegate/") + "`", b.name,
				b.cell(plainNanos, micros), b.cell(gatedNanos, micros), b.cell(latencyRatio, times),
				b.cell(throughputRatio, times)})
		}
	}
	return markdown("gate | write | plain, us | gated, us | latency, gated to plain | throughput, gated to plain", rows)
}

// benchmarkTable returns the other benchmarks.
func (d *document) benchmarkTable() string {
	var rows [][]string
	for _, b := range d.benchmarks {
		if len(b.values["ns/op"]) > 0 && len(b.values[latencyRatio]) == 0 {
			rows = append(rows, []string{"`" + b.pkg + "`", b.name,
				b.cell("ns/op", results.Number), b.cell("B/op", results.Number), b.cell("allocs/op", results.Number)})
		}
	}
	return markdown("package | benchmark | ns per operation | bytes allocated | allocations", rows)
}

// cell returns the spread of the values with a unit.
func (b benchmark) cell(unit string, format func(float64) string) string {
	return cell(results.NewSpread(b.values[unit]), format)
}
