package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/leased-project/leased/bench/results"
)

// sampleOf returns a measurement with figures of all panels.
func sampleOf(work, target string, size, round int, value float64) results.Sample {
	s := results.Sample{Work: work, Target: target, Round: round, Params: map[string]int{}, Figures: map[string]float64{}}
	for _, name := range append(workloads[work].by, workloads[work].x) {
		s.Params[name] = size
	}
	for _, d := range workloads[work].drawn {
		s.Figures[d.figure] = value
	}
	return s
}

// Plots are well-formed, also with one value, with zeros that a logarithmic axis cannot show, and without panels.
func TestPlotsAreWellFormed(t *testing.T) {
	for name, samples := range map[string]func(work string) []results.Sample{
		"nothing": func(string) []results.Sample { return nil },
		"one":     func(work string) []results.Sample { return []results.Sample{sampleOf(work, etcd, 1, 1, 7)} },
		"zero":    func(work string) []results.Sample { return []results.Sample{sampleOf(work, etcd, 1, 1, 0)} },
		"size 0":  func(work string) []results.Sample { return []results.Sample{sampleOf(work, etcd, 0, 1, 5)} },
		"many": func(work string) (all []results.Sample) {
			for _, size := range []int{1, 16, 256} {
				for round, value := range []float64{0, 5, 70_000} {
					all = append(all, sampleOf(work, leased, size, round+1, value), sampleOf(work, "R & D <x>", size, round+1,
						value*2))
				}
			}
			return all
		},
	} {
		for _, work := range workNames() {
			svg := string(newSummary([]results.Run{{Samples: samples(work)}}).plot(work))
			decoder := xml.NewDecoder(bytes.NewReader([]byte(svg)))
			err := error(nil)
			for err == nil {
				_, err = decoder.Token()
			}
			if !errors.Is(err, io.EOF) || strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
				t.Errorf("%s, %s: the plot is broken: %v\n%s", work, name, err, svg)
			}
			if name == "many" && (!strings.Contains(svg, "R &amp; D &lt;x&gt;") ||
				!strings.Contains(svg, "prefers-color-scheme:dark")) {
				t.Errorf("%s: the plot lacks a name or the dark colours", work)
			}
			if name == "many" && work == "snapshot" && !strings.Contains(svg, ">at most 50<") {
				t.Errorf("%s: the plot lacks the limit", work)
			}
		}
	}
}
