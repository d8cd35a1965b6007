package progress

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeClock is a clock that a test moves.
type fakeClock struct{ at time.Time }

func (c *fakeClock) now() time.Time { return c.at }

func (c *fakeClock) pass(d time.Duration) { c.at = c.at.Add(d) }

func TestLineOnTerminal(t *testing.T) {
	t.Parallel()
	clock, out := &fakeClock{at: time.Unix(1_000_000, 0)}, &strings.Builder{}
	l := newLine(out, true, clock.now)
	l.Show("too early")
	clock.pass(firstWait)
	l.Show("half")
	l.Show("too soon")
	clock.pass(drawInterval)
	l.Show("more")
	require.Equal(t, 700*time.Millisecond, l.Elapsed())
	l.End()
	l.End()
	clock.pass(time.Hour)
	l.Show("after the end")
	l.Stage("after the end", "")
	require.Equal(t, "\r\x1b[Khalf\r\x1b[Kmore\r\x1b[K", out.String())
}

// A line never takes more than one line of the terminal, and the time left stays visible.
func TestLineFitsTerminal(t *testing.T) {
	t.Parallel()
	text := "migration of report/* from efficiency to correctness: waiting for 3 leases on the Redis nodes, the " +
		"longest of which was granted with a TTL of 10m; 9m58s left"
	for _, width := range []int{1, 2, 12, 40, 80, 100} {
		clock, out := &fakeClock{at: time.Unix(1_000_000, 0)}, &strings.Builder{}
		l := newLine(out, true, clock.now)
		l.width = func() int { return width }
		l.Stage(text[:len(text)-len("; 9m58s left")], "; 9m58s left")
		drawn := strings.TrimPrefix(out.String(), "\r\x1b[K")
		require.Less(t, cells.StringWidth(drawn), max(2, width), drawn)
		if width >= 40 {
			require.Regexp(t, "^migration of report/.*…; 9m58s left$", drawn)
			require.Equal(t, width-1, cells.StringWidth(drawn), "no space is wasted")
		}
	}
	require.Equal(t, text, fit(text, 200))
	require.Equal(t, "日本日本…, 1s left", fit("日本日本日本日本日本日本, 1s left", 18), "wide characters take two columns")
}

func TestShortWorkLeavesNoTrace(t *testing.T) {
	t.Parallel()
	clock, out := &fakeClock{}, &strings.Builder{}
	l := newLine(out, true, clock.now)
	l.Show("short")
	l.End()
	require.Empty(t, out.String())
}

func TestPlainLines(t *testing.T) {
	t.Parallel()
	clock, out := &fakeClock{}, &strings.Builder{}
	l := newLine(out, false, clock.now)
	for i := range 25 {
		l.Show(strings.Repeat(".", i))
		clock.pass(time.Second)
	}
	l.End()
	require.Equal(t, "..........\n....................\n", out.String(), "a line every ten seconds")
}

func TestStages(t *testing.T) {
	t.Parallel()
	clock, out := &fakeClock{}, &strings.Builder{}
	l := newLine(out, false, clock.now)
	for i := range 12 {
		l.Stage("waiting for holders", ", "+TimeLeft(time.Duration(12-i)*time.Second))
		clock.pass(time.Second)
	}
	l.Stage("waiting for Redis", "")
	l.Stage("waiting for Redis", "")
	require.Equal(t, "waiting for holders, 12s left\nwaiting for holders, 2s left\nwaiting for Redis\n", out.String())
}

func TestNilLine(t *testing.T) {
	t.Parallel()
	var l *Line
	l.Show("nothing")
	l.Stage("nothing", "")
	l.End()
	require.Zero(t, l.Elapsed())
}

func TestWork(t *testing.T) {
	t.Parallel()
	require.Equal(t, "25.0 MiB of 100.0 MiB (25%), 5.0 MiB/s, 15s left",
		Work{Done: 25 << 20, Total: 100 << 20, Elapsed: 5 * time.Second}.Bytes())
	require.Equal(t, "3.0 KiB, 1.5 KiB/s", Work{Done: 3 << 10, Elapsed: 2 * time.Second}.Bytes())
	require.Equal(t, "0 B of 1.0 GiB (0%)", Work{Total: 1 << 30}.Bytes())
	require.Equal(t, "2 B of 1 B (100%), 2 B/s, 0s left", Work{Done: 2, Total: 1, Elapsed: time.Second}.Bytes())
	require.Equal(t, "1m30s left", Until(2*time.Minute, 30*time.Second))
	require.Equal(t, "finishing", Until(time.Second, time.Minute))
	require.Equal(t, "2.0 TiB", Size(2<<40))
}
