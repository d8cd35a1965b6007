package property

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

// The environment variables by which make prop and make soak control the tests.
const (
	// ReportVariable names the file that Publish appends to.
	ReportVariable = "LEASED_PROP_REPORT"
	// ScaleVariable is the factor by which a test exceeds its default budget.
	ScaleVariable = "LEASED_PROP_SCALE"
	// SeedVariable is the first seed of tests that number their seeds.
	SeedVariable = "LEASED_PROP_SEED"
)

// Full reports whether make prop or make soak runs the test, rather than a plain
// go test: a test then uses its full budget.
func Full() bool { return os.Getenv(ReportVariable) != "" }

// Publish appends a report, as one line of JSON, to the file that ReportVariable
// names. It does nothing if the variable is not set.
func Publish(r Report) error {
	name := os.Getenv(ReportVariable)
	if name == "" {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("publish report: %w", err)
	}
	// Several test programs append at the same time, so a line is one write.
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("publish report: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// Reports reads published reports.
func Reports(from io.Reader) ([]Report, error) {
	var all []Report
	d := json.NewDecoder(bufio.NewReader(from))
	for {
		var r Report
		switch err := d.Decode(&r); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return all, fmt.Errorf("read reports: %w", err)
		}
		all = append(all, r)
	}
}

// Scale returns the factor by which a test exceeds its default budget: the value of
// ScaleVariable, or 1.
func Scale() float64 {
	text := os.Getenv(ScaleVariable)
	if text == "" {
		return 1
	}
	scale, err := strconv.ParseFloat(text, 64)
	if err != nil || scale <= 0 || math.IsInf(scale, 0) || math.IsNaN(scale) {
		panic(fmt.Sprintf("%s must be a number above 0, not %q", ScaleVariable, text))
	}
	return scale
}

// Budget multiplies the default budget of a test (runs, steps, a duration) by
// Scale. The result is at least 1.
func Budget[N ~int | ~int64](n N) N { return max(1, N(float64(n)*Scale())) }

// FirstSeed returns the first seed of a test: the value of SeedVariable, or 1.
func FirstSeed() uint64 {
	text := os.Getenv(SeedVariable)
	if text == "" {
		return 1
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%s must be a number, not %q", SeedVariable, text))
	}
	return seed
}
