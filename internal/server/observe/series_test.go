package observe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var start = time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)

// A series knows the time of every number to a second, or to a small part of its age,
// however many numbers there were.
func TestSeriesAgreesWithAListOfAllTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s series
		var all []time.Time // of number i+1
		now := start
		steps := rapid.SliceOfN(rapid.SampledFrom([]time.Duration{0, time.Millisecond, 100 * time.Millisecond, time.Second,
			time.Minute, time.Hour}), 1, 300).Draw(t, "steps")
		for range rapid.IntRange(1, 40).Draw(t, "repeats") {
			for _, step := range steps {
				now = now.Add(step)
				all = append(all, now)
				s.add(now, uint64(len(all)))
			}
		}
		require.LessOrEqual(t, len(s.samples), maxSamples)
		require.True(t, s.valid())
		known := 0
		for i, at := range all {
			found := s.time(uint64(i+1), now)
			if found.IsZero() {
				continue
			}
			known++
			require.WithinDuration(t, at, found, max(2*sampleWidth, now.Sub(found)/precision))
		}
		require.GreaterOrEqual(t, known, min(len(all), maxSamples/4), "the newest times are known")
		require.Zero(t, s.time(uint64(len(all)+1), now), "the future is unknown")
		require.Zero(t, s.time(0, now))
	})
}

// A year of steady work fits into the samples, with the promised precision.
func TestSeriesCoversAYear(t *testing.T) {
	var s series
	number, now := uint64(0), start
	const step = 70 * time.Second
	for range 365 * 24 * time.Hour / step {
		number++
		now = now.Add(step)
		s.add(now, number)
	}
	for _, age := range []time.Duration{step, 10 * time.Minute, time.Hour, 24 * time.Hour, 300 * 24 * time.Hour} {
		back := age / step
		found := s.time(number-uint64(back), now)
		require.WithinDuration(t, now.Add(-back*step), found, max(2*sampleWidth, age/precision), age)
	}
}

// Numbers that were missed have no time, unless their neighbours bound it well.
func TestSeriesDoesNotGuess(t *testing.T) {
	var s series
	s.add(start, 10)
	s.closed = true // a snapshot was installed
	s.add(start.Add(time.Hour), 20)
	now := start.Add(time.Hour + time.Minute)
	require.Equal(t, start, s.time(10, now))
	require.Equal(t, start.Add(time.Hour), s.time(20, now))
	require.Zero(t, s.time(15, now), "it was used at any time within an hour")
	require.Zero(t, s.time(9, now))
	require.Equal(t, start, s.time(15, start.Add(100*time.Hour)), "an hour is little after a hundred")

	s.closed = true
	s.add(start.Add(time.Hour+100*time.Millisecond), 1<<32)
	require.Equal(t, start.Add(time.Hour+100*time.Millisecond), s.time(1<<32, now),
		"a jump of the numbers is no reason to mix samples")
}

// Entries that are replayed after a restart change nothing. Those of another log replace
// the samples.
func TestSeriesTellsReplaysFromAnotherLog(t *testing.T) {
	var s series
	for i := range 100 {
		s.add(start.Add(time.Duration(i)*time.Minute), uint64(1000+i))
	}
	before := append([]sample(nil), s.samples...)
	for i := 50; i < 100; i++ {
		s.add(start.Add(time.Duration(i)*time.Minute), uint64(1000+i))
	}
	require.Equal(t, before, s.samples)

	later := start.Add(1000 * time.Hour)
	s.add(later, 1)
	require.Equal(t, later, s.time(1, later.Add(time.Minute)))
	require.Zero(t, s.time(1050, later.Add(time.Minute)), "the token of another cluster")

	s = series{samples: before}
	s.add(start.Add(10*time.Minute), 1080)
	require.Equal(t, start.Add(10*time.Minute), s.time(1080, later))
	require.Zero(t, s.time(1050, later))
}
