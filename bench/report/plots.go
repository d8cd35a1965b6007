package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// plotFolder is the folder of the plots, below that of the document.
const plotFolder = "performance"

// Lengths of the plots, in points.
const (
	plotWidth  = 660
	margin     = 12
	gap        = 22
	lineHeight = 15
	fontSize   = 9
)

// plot returns the plot of a workload: a panel for each figure, with a line for each target along the parameter x.
// Without x, a panel for each figure and case, with a bar for each target.
func (s *summary) plot(work string) []byte {
	w := workloads[work]
	var panels []*plot.Plot
	height := vg.Length(0)
	legend := &legend{seen: map[string]bool{}}
	for _, d := range w.drawn {
		if len(s.measured(work, []string{d.figure})) == 0 {
			continue
		}
		if w.x != "" {
			panels, height = append(panels, s.lines(work, d, legend)), 230
			continue
		}
		for _, at := range s.cases(work, w.by) {
			p, bars := s.bars(work, d, at)
			panels, height = append(panels, p), max(height, lineHeight*vg.Length(bars)+30)
		}
	}
	return picture(w.title, legend, panels, height)
}

// picture draws panels of the same height in two columns, below the title and the legend.
func picture(title string, legend *legend, panels []*plot.Plot, height vg.Length) []byte {
	tiles := draw.Tiles{Cols: max(1, min(2, len(panels))), PadX: gap, PadY: gap}
	tiles.Rows = (len(panels) + tiles.Cols - 1) / tiles.Cols
	rows := vg.Length(tiles.Rows)
	top := margin + 2*lineHeight + lineHeight*vg.Length(legend.rows())
	canvas := vgsvg.New(plotWidth, top+rows*height+max(0, rows-1)*gap+margin)
	all := draw.New(canvas)
	all.SetColor(white.color())
	all.Fill(all.Path())
	all = draw.Crop(all, margin, -margin, margin, -margin)
	head := plot.New().Title.TextStyle
	head.Font.Size, head.XAlign = fontSize+2, draw.XLeft
	all.FillText(head, vg.Point{X: all.Min.X, Y: all.Max.Y}, title)
	legend.draw(draw.Crop(all, 0, 0, 0, -lineHeight*3/2))
	body := draw.Crop(all, 0, 0, 0, margin-top)
	for i, p := range panels {
		p.Draw(tiles.At(body, i%tiles.Cols, i/tiles.Cols))
	}
	var out bytes.Buffer
	_, _ = canvas.WriteTo(&out) // writes to memory do not fail
	return themed(out.String(), title)
}

// themed adds a title for screen readers, and the colours for readers whose pages are dark.
func themed(svg, title string) []byte {
	var dark strings.Builder
	for _, s := range []shade{grey, blue, vermilion, green, purple, orange, indigo, brown, black, white, grid} {
		for _, part := range []string{"stroke", "fill"} {
			fmt.Fprintf(&dark, "[style*=\"%s:#%06X\"]{%s:#%06X!important}\n", part, s.light, part, s.dark)
		}
	}
	const format = "<title>%s</title>\n<style>\n@media (prefers-color-scheme:dark){\ntext{fill:#%06X}\n%s}\n</style>\n<g "
	begin := fmt.Sprintf(format, html.EscapeString(title), black.dark, dark.String())
	svg = strings.Replace(svg, "<g ", begin, 1)
	return []byte(strings.ReplaceAll(svg, ":Liberation Sans;", ":Liberation Sans,Helvetica,Arial,sans-serif;"))
}

// newPanel returns a panel without data.
func newPanel(title string) *plot.Plot {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.BackgroundColor = nil
	p.Title.Text, p.Title.Padding = title, 6
	p.Title.TextStyle.Font.Size = fontSize
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Padding, a.Label.TextStyle.Font.Size, a.Tick.Label.Font.Size = 0, fontSize, fontSize-1
	}
	return p
}

// text returns the label of the axis.
func (d drawn) text(w workload) string {
	if d.label != "" {
		return d.label
	}
	return w.label(d.figure)
}

// lines returns a panel with a line for each target.
func (s *summary) lines(work string, d drawn, legend *legend) *plot.Plot {
	w := workloads[work]
	p := newPanel(d.text(w))
	p.X.Label.Text = w.x
	p.Add(&plotter.Grid{Horizontal: draw.LineStyle{Color: grid.color(), Width: .75}})
	var ticks plot.ConstantTicks
	for _, at := range s.cases(work, []string{w.x}) {
		if x := float64(at[w.x]); x > 0 {
			ticks = append(ticks, plot.Tick{Value: x, Label: humanize.Commaf(x)})
		}
	}
	for _, target := range s.targets(work) {
		if points := s.points(work, target, d); points.Len() > 0 {
			l := lookOf(target)
			line, marks := l.line(points.XYs)
			thin := draw.LineStyle{Color: l.shade.color(), Width: 1}
			p.Add(&plotter.YErrorBars{XYs: points.XYs, YErrors: points.YErrors, LineStyle: thin}, line, marks)
			legend.add(l)
		}
	}
	if d.limit > 0 && len(legend.seen) > 0 {
		ends := plotter.XYs{{X: p.X.Min, Y: d.limit}, {X: p.X.Max, Y: d.limit}}
		style := draw.LineStyle{Color: black.color(), Width: .75, Dashes: []vg.Length{4, 3}}
		text := fmt.Sprintf("at most %g", d.limit)
		p.Add(&plotter.Line{XYs: ends, LineStyle: style}, caption(ends[0], text, vg.Point{Y: 3}))
	}
	if w.x != "nodes" {
		logarithmic(&p.X)
	}
	p.Y.Tick.Marker = plot.TickerFunc(linearTicks)
	if d.log {
		logarithmic(&p.Y)
		p.Y.Tick.Marker = plot.TickerFunc(logTicks)
	} else {
		p.Y.Min = 0
	}
	p.X.Tick.Marker = ticks
	return p
}

// points are values with their ranges.
type points struct {
	plotter.XYs
	plotter.YErrors
}

// points returns the values of a target. Values that a logarithmic axis cannot show are left out.
func (s *summary) points(work, target string, d drawn) (all points) {
	x, unit := workloads[work].x, max(d.divide, 1)
	for _, at := range s.cases(work, []string{x}) {
		v := s.values(work, target, d.figure, at).all()
		if v.Count == 0 || at[x] <= 0 || d.log && v.Median <= 0 {
			continue
		}
		if d.log && v.Low <= 0 {
			v.Low = v.Median
		}
		all.XYs = append(all.XYs, plotter.XY{X: float64(at[x]), Y: v.Median / unit})
		all.YErrors = append(all.YErrors, struct{ Low, High float64 }{(v.Median - v.Low) / unit, (v.Top - v.Median) / unit})
	}
	return all
}

// bars returns a panel with a horizontal bar for each target, the first on top, and their number.
func (s *summary) bars(work string, d drawn, at params) (*plot.Plot, int) {
	title := d.text(workloads[work])
	if text := at.text(workloads[work].by); text != "" {
		title += ", " + text
	}
	p := newPanel(title)
	var names []string
	for _, target := range slices.Backward(s.targets(work)) {
		v := s.values(work, target, d.figure, at).all()
		if v.Count == 0 {
			continue
		}
		y := float64(len(names))
		names = append(names, label(target))
		color := lookOf(target).shade.color()
		p.Add(&plotter.BarChart{Values: plotter.Values{v.Median}, XMin: y, Width: 10, Horizontal: true, Color: color},
			&plotter.XErrorBars{XYs: plotter.XYs{{X: v.Median, Y: y}},
				XErrors:   plotter.XErrors{{Low: v.Median - v.Low, High: v.Top - v.Median}},
				LineStyle: draw.LineStyle{Color: black.color(), Width: 1}, CapWidth: 5},
			caption(plotter.XY{X: v.Top, Y: y}, figures[d.figure].format(v.Median), vg.Point{X: 4, Y: -3}))
	}
	p.HideX()
	p.NominalY(names...)
	p.Y.Padding = 8
	p.X.Min, p.Y.Min, p.Y.Max = 0, -.5, float64(len(names))-.5
	return p, len(names)
}

// caption returns a text beside a point.
func caption(at plotter.XY, text string, offset vg.Point) *plotter.Labels {
	style := plot.New().Title.TextStyle
	style.Font.Size, style.XAlign, style.YAlign = fontSize-1, draw.XLeft, draw.YBottom
	styles := []draw.TextStyle{style}
	return &plotter.Labels{XYs: plotter.XYs{at}, Labels: []string{text}, TextStyle: styles, Offset: offset}
}

// logarithmic makes an axis logarithmic. Its values are positive.
func logarithmic(a *plot.Axis) {
	if a.Min >= a.Max { // one value, or none
		a.Min, a.Max = min(a.Min, 2)/2, max(a.Max, 1)*2
	}
	a.Scale = plot.LogScale{}
}

// linearTicks returns equal steps, all with a label if there are few.
func linearTicks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i := range ticks {
		if !ticks[i].IsMinor() || len(ticks) < 9 {
			ticks[i].Label = rounded(ticks[i].Value)
		}
	}
	return ticks
}

// rounded prints the value of a tick.
func rounded(v float64) string { return humanize.Commaf(math.Round(v*1000) / 1000) }

// logTicks returns powers of ten, with 2 and 5 times them if the range is short.
func logTicks(low, high float64) (ticks []plot.Tick) {
	factors := []float64{1, 2, 5}
	if high/low > 1000 {
		factors = factors[:1]
	}
	for decade := math.Pow(10, math.Floor(math.Log10(low))); decade <= high; decade *= 10 {
		for _, f := range factors {
			ticks = append(ticks, plot.Tick{Value: f * decade, Label: rounded(f * decade)})
		}
	}
	return ticks
}

// line returns the line and the markers of a target.
func (l look) line(points plotter.XYs) (*plotter.Line, *plotter.Scatter) {
	line := &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: l.shade.color(), Width: 1.5}}
	if l.dashed {
		line.Dashes = []vg.Length{5, 3}
	}
	mark := draw.GlyphStyle{Color: l.shade.color(), Radius: 3, Shape: l.marker}
	return line, &plotter.Scatter{XYs: points, GlyphStyle: mark}
}

// legend has the targets of all panels, each once.
type legend struct {
	seen    map[string]bool
	columns [3]plot.Legend
}

// rows returns the number of entries of the longest column.
func (l *legend) rows() int { return (len(l.seen) + len(l.columns) - 1) / len(l.columns) }

// add adds a target.
func (l *legend) add(t look) {
	if l.seen[t.name] {
		return
	}
	column := &l.columns[len(l.seen)%len(l.columns)]
	if len(l.seen) < len(l.columns) {
		*column = newPanel("").Legend
		column.Top, column.Left, column.Padding = true, true, 4
		column.TextStyle.Font.Size, column.ThumbnailWidth = fontSize, 22
	}
	l.seen[t.name] = true
	line, marks := t.line(nil)
	column.Add(t.label, line, marks)
}

// draw draws the columns beside each other.
func (l *legend) draw(c draw.Canvas) {
	tiles := draw.Tiles{Rows: 1, Cols: len(l.columns)}
	for i := range min(len(l.seen), len(l.columns)) {
		l.columns[i].Draw(tiles.At(c, i, 0))
	}
}
