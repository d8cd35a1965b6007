package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/leased-project/leased/bench/results"
)

//go:embed performance.md.tmpl
var page string

// document fills the template.
type document struct {
	*summary
	benchmarks []benchmark
	plots      map[string][]byte // by file name
}

// text returns the document, and collects the plots that it shows.
func (d *document) text() ([]byte, error) {
	t, err := template.New("performance.md.tmpl").Funcs(template.FuncMap{
		"goals":    d.goalTable,
		"machine":  d.machine,
		"commands": d.commands,
		"work":     d.section,
		"losses":   d.lossTable,
		"missed":   d.isMissed,
		"anyMissed": func() bool {
			return slices.ContainsFunc(goals, func(g goal) bool { _, o := d.measure(g); return o == missed })
		},
		"gates":    d.gateTable,
		"micro":    d.benchmarkTable,
		"profiles": d.profileTable,
		"figure":   d.figure,
		"ratio":    d.ratioOf,
		"has":      func(work string) bool { return len(d.targets(work)) > 0 },
	}).Parse(page)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, nil); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// section returns the plot, the table, the steal and the notes of a workload.
func (d *document) section(work string) (string, error) {
	w, ok := workloads[work]
	if !ok {
		return "", fmt.Errorf("there is no workload %q", work)
	}
	if len(d.targets(work)) == 0 {
		return "Not measured in these results.\n", nil
	}
	name := strings.ToLower(work) + ".svg"
	d.plots[name] = d.plot(work)
	var out strings.Builder
	fmt.Fprintf(&out, "![%s](%s/%s)\n\n%s\n%s\n", w.title, plotFolder, name, d.table(work), d.stealText(work))
	for _, note := range d.notes(work) {
		fmt.Fprintf(&out, "\n- %s", note)
	}
	return strings.TrimRight(out.String(), "\n") + "\n", nil
}

// machine describes where the runs took place, and the versions.
func (d *document) machine() string {
	if len(d.runs) == 0 {
		return "There are no results yet.\n"
	}
	var out strings.Builder
	out.WriteString("| run | processor | memory | disk | kernel | Go | commit | rounds |\n|---|---|---|---|---|---|---|---|\n")
	versions := map[string]string{}
	for _, run := range d.runs {
		m := run.Machine
		fmt.Fprintf(&out, "| %s | %s, %d cores | %s | %s | %s | %s | %s | %d |\n", run.Started.UTC().Format(time.DateTime+" UTC"),
			m.CPU, m.Cores, mebibytes(float64(m.Memory)), orUnknown(m.Disk), m.Kernel, m.Go, orUnknown(run.Commit), rounds(run))
		maps.Copy(versions, run.Versions)
	}
	out.WriteString("\n| service | version |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		fmt.Fprintf(&out, "| %s | %s |\n", label(name), orUnknown(strings.TrimSpace(versions[name])))
	}
	return out.String()
}

// rounds returns the largest number of a round.
func rounds(run results.Run) (n int) {
	for _, m := range run.Samples {
		n = max(n, m.Round)
	}
	return n
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown"
	}
	return text
}

// commands lists the commands of the runs.
func (d *document) commands() string {
	var out strings.Builder
	for _, run := range d.runs {
		fmt.Fprintf(&out, "    %s\n", orUnknown(run.Command))
	}
	return out.String()
}

// isMissed reports whether a goal was measured and is not reached.
func (d *document) isMissed(name string) (bool, error) {
	i := slices.IndexFunc(goals, func(g goal) bool { return g.name == name })
	if i < 0 {
		return false, fmt.Errorf("there is no goal %q", name)
	}
	_, o := d.measure(goals[i])
	return o == missed, nil
}

// figure prints a figure for the text. At has values of parameters, such as "workers=256 processes=1".
func (d *document) figure(work, target, name, at string) (string, error) {
	p, err := parseParams(at)
	if err != nil {
		return "", err
	}
	return d.values(work, target, name, p).all().format(figureOf(name).format), nil
}

// ratioOf prints the ratio of a figure of two targets for the text.
func (d *document) ratioOf(work, ours, peer, name, at string) (string, error) {
	p, err := parseParams(at)
	if err != nil {
		return "", err
	}
	return ratio(d.values(work, ours, name, p), d.values(work, peer, name, p)).format(times), nil
}

// parseParams reads "workers=256 processes=1".
func parseParams(text string) (params, error) {
	p := params{}
	for field := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(field, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			return nil, fmt.Errorf("read the parameters %q: %w", text, err)
		}
		p[name] = n
	}
	return p, nil
}
