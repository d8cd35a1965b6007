package promise

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
)

// The environment by which `make prop` and `make soak` talk to the tests.
const (
	// ReportFile names the file that Publish appends to.
	ReportFile = "LEASED_PROP_REPORT"
	// ScaleFactor is by how much more a test shall do than in a plain go test.
	ScaleFactor = "LEASED_PROP_SCALE"
	// Seed is where tests begin to count their seeds, if they have any.
	Seed = "LEASED_PROP_SEED"
)

// Publish appends a report, as one line of JSON, to the file that the
// environment names by ReportFile. Without one it does nothing.
func Publish(r Report) error {
	name := os.Getenv(ReportFile)
	if name == "" {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("publish a report: %w", err)
	}
	// Several test programs append at one time: a line is one write.
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("publish a report: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// Reports reads what was published.
func Reports(from io.Reader) ([]Report, error) {
	var all []Report
	d := json.NewDecoder(bufio.NewReader(from))
	for {
		var r Report
		switch err := d.Decode(&r); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return all, fmt.Errorf("read the reports: %w", err)
		}
		all = append(all, r)
	}
}

// Scale is by how much more a test shall do than in a plain go test: 1 unless
// the environment says otherwise by ScaleFactor.
func Scale() float64 {
	text := os.Getenv(ScaleFactor)
	if text == "" {
		return 1
	}
	scale, err := strconv.ParseFloat(text, 64)
	if err != nil || scale <= 0 || math.IsInf(scale, 0) || math.IsNaN(scale) {
		panic(fmt.Sprintf("%s must be a number above 0, it is %q", ScaleFactor, text))
	}
	return scale
}

// Budget multiplies what a test does by default (runs, steps, a duration) by
// Scale. It is never below 1.
func Budget[N ~int | ~int64](n N) N { return max(1, N(float64(n)*Scale())) }

// FirstSeed is where a test begins to count its seeds: 1 unless the environment
// says otherwise by Seed.
func FirstSeed() uint64 {
	text := os.Getenv(Seed)
	if text == "" {
		return 1
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%s must be a number, it is %q", Seed, text))
	}
	return seed
}
