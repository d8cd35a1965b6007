package main

import (
	"fmt"

	"github.com/leased-project/leased/bench/plot"
)

// plotFolder is the folder of the plots, below that of the document.
const plotFolder = "performance"

// plot returns the plot of a workload.
func (s *summary) plot(work string) []byte {
	w := workloads[work]
	f := plot.Figure{Title: w.title}
	for _, d := range w.drawn {
		if len(s.measured(work, []string{d.figure})) == 0 {
			continue
		}
		if w.x != "" {
			f.Panels = append(f.Panels, s.lines(work, d))
			continue
		}
		for _, at := range s.cases(work, w.by) {
			f.Panels = append(f.Panels, s.bars(work, d, at))
		}
	}
	return f.SVG()
}

// text returns the label of the axis.
func (d drawn) text(w workload) string {
	if d.label != "" {
		return d.label
	}
	return w.label(d.figure)
}

// lines returns a panel with a line per target.
func (s *summary) lines(work string, d drawn) plot.Lines {
	w := workloads[work]
	unit := d.divide
	if unit == 0 {
		unit = 1
	}
	l := plot.Lines{XLabel: w.x, YLabel: d.text(w), LogX: w.x != "nodes", LogY: d.log, Limit: d.limit / unit, LimitLabel: fmt.Sprintf("at most %g", d.limit)}
	for _, target := range s.targets(work) {
		series := plot.Series{Name: label(target), Style: lookOf(target).style}
		for _, at := range s.cases(work, []string{w.x}) {
			if v := s.values(work, target, d.figure, at).all(); v.count > 0 {
				series.Points = append(series.Points, plot.Point{X: float64(at[w.x]), Y: v.median / unit, Low: v.low / unit, High: v.top / unit})
			}
		}
		if len(series.Points) > 0 {
			l.Series = append(l.Series, series)
		}
	}
	return l
}

// bars returns a panel with a bar per target.
func (s *summary) bars(work string, d drawn, at params) plot.Bars {
	title := d.text(workloads[work])
	if text := at.text(workloads[work].by); text != "" {
		title += ", " + text
	}
	b := plot.Bars{Title: title}
	for _, target := range s.targets(work) {
		v := s.values(work, target, d.figure, at).all()
		if v.count == 0 {
			continue
		}
		b.Bars = append(b.Bars, plot.Bar{Name: label(target), Style: lookOf(target).style, Value: v.median, Low: v.low, High: v.top,
			Label: figureOf(d.figure).format(v.median)})
	}
	return b
}
