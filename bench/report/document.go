package main

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/leased-project/leased/bench/results"
)

//go:embed *.md.tmpl
var pages embed.FS

// document fills the templates.
type document struct {
	*summary
	benchmarks []benchmark
	plots      map[string][]byte // by file name
}

// text fills a template, and collects the plots that it shows.
func (d *document) text(name string) ([]byte, error) {
	t, err := template.New(name).Funcs(template.FuncMap{
		"goals":     d.goalTable,
		"headlines": d.headlineTable,
		"machine":   d.machine,
		"commands":  d.commands,
		"work":      d.section,
		"losses":    d.lossTable,
		"missed":    d.isMissed,
		"anyMissed": func() bool {
			return slices.ContainsFunc(goals, func(g goal) bool { _, o := d.measure(g); return o == missed })
		},
		"gates":    d.gateTable,
		"micro":    d.benchmarkTable,
		"profiles": d.profileTable,
	}).ParseFS(pages, name)
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
	var rows, services [][]string
	versions := map[string]string{}
	for _, run := range d.runs {
		m := run.Machine
		started, cores := run.Started.UTC().Format(time.DateTime+" UTC"), fmt.Sprintf("%s, %d cores", m.CPU, m.Cores)
		rows = append(rows, []string{started, cores, mebibytes(float64(m.Memory)), orUnknown(m.Disk),
			m.Kernel, m.Go, orUnknown(run.Commit), fmt.Sprint(rounds(run))})
		maps.Copy(versions, run.Versions)
	}
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		services = append(services, []string{label(name), orUnknown(strings.TrimSpace(versions[name]))})
	}
	return markdown("run | processor | memory | disk | kernel | Go | commit | rounds", rows) + "\n" +
		markdown("service | version", services)
}

// rounds returns the largest number of a round.
func rounds(run results.Run) (n int) {
	for _, m := range run.Samples {
		n = max(n, m.Round)
	}
	return n
}

func orUnknown(text string) string { return cmp.Or(text, "unknown") }

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
