package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leased-project/leased/bench/results"
)

// run returns results with a round of W1 for each pair of rates.
func run(rates ...[2]float64) results.Run {
	r := results.Run{Machine: results.Machine{CPU: "a processor", Cores: 2, Disk: "vda, ext4"},
		Versions: map[string]string{"etcd": "9.9"},
		Started:  time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Command: "go run . -rounds 3"}
	for i, pair := range rates {
		for j, target := range []string{leased, etcd} {
			r.Samples = append(r.Samples, results.Sample{Work: "W1", Target: target, Params: map[string]int{"workers": 256,
				"clients": 1 + 255*j}, Round: i + 1,
				Figures: map[string]float64{results.Rate: pair[j], results.P50: 1}, Steal: .02})
		}
	}
	return r
}

// report writes the report of runs and returns the documents.
func report(t *testing.T, runs ...results.Run) string {
	t.Helper()
	docs := t.TempDir()
	var files []string
	for i, r := range runs {
		files = append(files, filepath.Join(docs, string(rune('a'+i))+".json"))
		if err := r.Write(files[i]); err != nil {
			t.Fatal(err)
		}
	}
	goals := filepath.Join(docs, "GOALS.md")
	if err := write(docs, goals, files); err != nil {
		t.Fatal(err)
	}
	var text []byte
	for _, file := range []string{filepath.Join(docs, "PERFORMANCE.md"), goals} {
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, page...)
	}
	for _, link := range regexp.MustCompile(`\]\((performance/[^)]*)\)`).FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(filepath.Join(docs, link[1])); err != nil {
			t.Errorf("the document shows a plot that is missing: %v", err)
		}
	}
	return string(text)
}

func expect(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("the document lacks %q", part)
		}
	}
}

// A ratio is the median of the ratios of the rounds, not the ratio of the medians, which is 10 here.
func TestRatioIsOfRounds(t *testing.T) {
	text := report(t, run([2]float64{1000, 100}, [2]float64{2000, 250}, [2]float64{500, 50}))
	expect(t, text, "| 256 workers | leased, correctness | 1,000 (500 to 2,000) | 1.00 |",
		"| 256 workers | etcd | 100 (50.0 to 250) | 1.00 | 10.0x (8.00x to 10.0x) |",
		"at least 10x etcd | 10.0x (8.00x to 10.0x) | yes |", "a processor, 2 cores", "vda, ext4", "| etcd | 9.9 |",
		"    go run . -rounds 3\n")
}

// Rounds of two runs have the same numbers, and do not belong together.
func TestRunsAreSeparate(t *testing.T) {
	text := report(t, run([2]float64{1000, 100}), run([2]float64{100, 20}))
	expect(t, text, "7.50x (5.00x to 10.0x) | **no** |")
}

func TestMissingTargets(t *testing.T) {
	text := report(t, run([2]float64{1000, 100}))
	expect(t, text, "no figure of ZooKeeper", "no figure of gated write", "### W4: the leader is killed",
		"Not measured in these results.")
	failed := run([2]float64{1000, 100})
	failed.Samples[1].Figures, failed.Samples[1].Note = map[string]float64{results.Errors: 0}, "etcd does not start"
	expect(t, report(t, failed), "| 256 workers | etcd | no operation completed |", "\n- etcd: etcd does not start\n")
	expect(t, report(t), "There are no results yet.")
	text = report(t, results.Run{})
	expect(t, text, "0 of ", "no figure of leased, correctness", "no peer is ahead")
}

func TestLosses(t *testing.T) {
	r := run([2]float64{100, 400})
	text := report(t, r)
	expect(t, text, "pairs/s | leased, correctness | etcd | 0.25x |")
}

// The text about a goal that is missed appears only if it is.
func TestReasonOfMissedGoal(t *testing.T) {
	r := run([2]float64{100, 400})
	for i := range r.Samples {
		r.Samples[i].Params["workers"] = 1
	}
	expect(t, report(t, r), "What limits the goals that are not reached, and what was tried:\n\n- **One worker, and "+
		"handoffs of one lock:**")
	for i := range r.Samples {
		r.Samples[i].Figures[results.P50] = 1 + float64(9*(i%2)) // etcd has 10 ms
	}
	if strings.Contains(report(t, r), "What limits") {
		t.Error("a reason without a goal that is missed")
	}
}

func TestStealWarning(t *testing.T) {
	r := run([2]float64{100, 400})
	if text := report(t, r); strings.Contains(text, "Warning") {
		t.Error("a warning without much steal")
	}
	r.Samples[0].Steal = .15
	expect(t, report(t, r), "at most 15.0 %. **Warning:** above 10 %")
}

// templateText returns the text of all templates.
func templateText(t *testing.T) (text string) {
	t.Helper()
	for _, name := range []string{"performance.md.tmpl", "goals.md.tmpl"} {
		page, err := pages.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text += string(page)
	}
	return text
}

// The templates' own text has no figure, so that none can be out of date.
func TestTemplatesHaveNoFigures(t *testing.T) {
	text := regexp.MustCompile(`(?s){{.*?}}`).ReplaceAllString(templateText(t), "")
	text = regexp.MustCompile(`\bW\d\b|\[ADR \d+\]\([^)]*\)`).ReplaceAllString(text, "")
	if digits := regexp.MustCompile(`.{0,30}\d.{0,30}`).FindAllString(text, -1); digits != nil {
		t.Errorf("the templates have figures of their own: %q", digits)
	}
}

// Every workload has a section in the document.
func TestTemplateHasAllWorkloads(t *testing.T) {
	text := templateText(t)
	for _, name := range workNames() {
		if !strings.Contains(text, `{{work "`+name+`"}}`) {
			t.Errorf("the template lacks the workload %s", name)
		}
	}
}

// Every headline is a goal with a peer.
func TestHeadlines(t *testing.T) {
	for _, name := range headlines {
		if !slices.ContainsFunc(goals, func(g goal) bool { return g.name == name && g.peer != "" }) {
			t.Errorf("%q is not a goal with a peer", name)
		}
	}
	expect(t, report(t, run([2]float64{1000, 100})),
		"| correctness, own locks, 256 workers, pairs/s | etcd | 10.0x | more is better |")
}

func TestBenchmarks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gates.txt")
	text := "goos: linux\npkg: github.com/leased-project/leased/storagegate/boltgate\n" +
		"BenchmarkWrite/writers=1-2  100  5000 gated-ns/write  1.25 latency-ratio  0.8 throughput-ratio  4000 " +
		"ungated-ns/write\n" +
		"BenchmarkWrite/writers=1-2  100  7000 gated-ns/write  1.75 latency-ratio  0.6 throughput-ratio  4000 " +
		"ungated-ns/write\n" +
		"PASS\nok  x 1s\npkg: github.com/leased-project/leased/fencing\nBenchmarkSign-2  10  1500 ns/op  16 B/op  1 " +
		"allocs/op\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	docs := t.TempDir()
	if err := write(docs, filepath.Join(docs, "GOALS.md"), []string{file}); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(docs, "PERFORMANCE.md"))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, string(page), "| `boltgate` | Write/writers=1 | 4.00 | 6.00 (5.00 to 7.00) | 1.50x (1.25x to 1.75x) | "+
		"0.70x (0.60x to 0.80x) |",
		"| `fencing` | Sign | 1,500 | 16.0 | 1.00 |")
	if err := os.WriteFile(file, []byte("BenchmarkSign-2  10  fast ns/op\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(docs, filepath.Join(docs, "GOALS.md"), []string{file}); err == nil {
		t.Error("a broken file was accepted")
	}
}

// The report of the same results is the same, so that a diff shows changed figures only.
func TestReportIsStable(t *testing.T) {
	a, b := report(t, run([2]float64{1000, 100})), report(t, run([2]float64{1000, 100}))
	if a != b {
		t.Error("two reports of the same results differ")
	}
}
