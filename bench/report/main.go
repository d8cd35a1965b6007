package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/leased-project/leased/bench/results"
)

func main() {
	docs := flag.String("docs", "../docs", "folder for PERFORMANCE.md and the folder performance with the plots")
	goals := flag.String("goals", "GOALS.md", "file for the goals")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(),
			"usage: report [-docs FOLDER] [-goals FILE] FILE...\n"+
				"Files are results (.json), or the output of Go benchmarks (.txt).")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(*docs, *goals, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "write the report:", err)
		os.Exit(1)
	}
}

// write reads the results and writes the documents and the plots. Plots of earlier reports are removed.
func write(docs, goals string, files []string) error {
	var runs []results.Run
	var benchmarks []benchmark
	for _, file := range files {
		if filepath.Ext(file) == ".txt" {
			more, err := readBenchmarks(file)
			if err != nil {
				return err
			}
			benchmarks = append(benchmarks, more...)
			continue
		}
		run, err := results.Read(file)
		if err != nil {
			return err
		}
		runs = append(runs, run)
	}
	d := &document{summary: newSummary(runs), benchmarks: benchmarks, plots: map[string][]byte{}}
	text, err := d.text("performance.md.tmpl")
	if err != nil {
		return err
	}
	goalText, err := d.text("goals.md.tmpl")
	if err != nil {
		return err
	}
	folder := filepath.Join(docs, plotFolder)
	old, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, svg := range d.plots {
		if err := os.WriteFile(filepath.Join(folder, name), svg, 0o644); err != nil {
			return err
		}
	}
	if err := os.WriteFile(goals, goalText, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(docs, "PERFORMANCE.md"), text, 0o644)
}
