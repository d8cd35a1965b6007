package plot_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/leased-project/leased/bench/plot"
)

// sample is a figure with every kind of panel.
func sample() plot.Figure {
	spread := func(x, y float64) plot.Point { return plot.Point{X: x, Y: y, Low: y * .9, High: y * 1.2} }
	lines := plot.Lines{XLabel: "workers", YLabel: "pairs per second", LogX: true, LogY: true, Limit: 50, LimitLabel: "promise", Series: []plot.Series{
		{Name: "leased", Style: plot.Style{Color: plot.Blue}, Points: []plot.Point{spread(1, 900), spread(16, 6000), spread(64, 11000), spread(256, 15000)}},
		{Name: "R & D <x>", Style: plot.Style{Color: plot.Vermilion, Marker: plot.Square, Dashed: true},
			Points: []plot.Point{spread(1, 500), spread(16, 2000), spread(64, 2600), spread(256, 2800)}},
	}}
	bars := plot.Bars{Title: "handoffs", Bars: []plot.Bar{
		{Name: "leased", Style: plot.Style{Color: plot.Blue}, Value: 900, Low: 850, High: 1000, Label: "900 (850 to 1,000)"},
		{Name: "missing", Label: "not measured"},
	}}
	return plot.Figure{Title: "A sample", Panels: []plot.Panel{lines, lines, bars}}
}

func TestFigureIsWellFormed(t *testing.T) {
	svg := sample().SVG()
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("parse the picture: %v\n%s", err, svg)
		}
	}
	for _, part := range []string{"R &amp; D &lt;x&gt;", "not measured", "prefers-color-scheme:dark", ">promise<"} {
		if !strings.Contains(string(svg), part) {
			t.Errorf("the picture lacks %q", part)
		}
	}
	if strings.Contains(string(svg), "NaN") || strings.Contains(string(svg), "Inf") {
		t.Error("the picture contains a coordinate that is no number")
	}
}

// A figure without values, or with values that a logarithmic axis cannot show, is drawn nevertheless.
func TestFigureOfNothing(t *testing.T) {
	for name, f := range map[string]plot.Figure{
		"no panel":  {Title: "x"},
		"no series": {Title: "x", Panels: []plot.Panel{plot.Lines{LogX: true, LogY: true}}},
		"zero":      {Title: "x", Panels: []plot.Panel{plot.Lines{LogX: true, LogY: true, Series: []plot.Series{{Name: "a", Points: []plot.Point{{}}}}}}},
		"no bars":   {Title: "x", Panels: []plot.Panel{plot.Bars{Title: "b"}}},
	} {
		svg := string(f.SVG())
		if !strings.HasSuffix(svg, "</svg>\n") || strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s: the picture is broken:\n%s", name, svg)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.5: "0.5", 20: "20", 5000: "5k", 12500: "12.5k", 1e6: "1M", 999: "999"} {
		if got := plot.Number(v); got != want {
			t.Errorf("Number(%v) = %q, want %q", v, got, want)
		}
	}
}
