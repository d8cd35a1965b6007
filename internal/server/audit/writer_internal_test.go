package audit

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A disk that becomes full within a line loses lines, and the first line after that says how many. The line that was
// cut is one of them.
func TestDiskBecomesFullWithinALine(t *testing.T) {
	t.Parallel()
	out, in, err := os.Pipe()
	require.NoError(t, err)
	l := &Log{config: Config{Logger: slog.New(slog.DiscardHandler)}, queue: make(chan Record),
		stop: make(chan struct{}), writer: writer{file: in}}
	close(l.stop)
	full := make(chan error, 1)
	go func() {
		_, err := out.Read(make([]byte, 1)) // a part of the first line is written, and a pipe does not hold all of it
		full <- errors.Join(err, in.SetWriteDeadline(time.Now()))
	}()
	l.writeBatch(Record{Event: Grant, Detail: strings.Repeat("x", 1<<20)})
	require.NoError(t, <-full)
	for lost := uint64(1); lost <= 3; lost++ {
		require.Equal(t, lost, l.Lost())
		l.writeBatch(Record{Event: Grant})
	}
	require.NoError(t, in.SetWriteDeadline(time.Time{}))
	text := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(out)
		text <- all
	}()
	l.writeBatch(Record{Event: Break})
	require.NoError(t, in.Close())
	lines := strings.Split(string(<-text), "\n")
	require.Len(t, lines, 4, "a part of a line, two lines and the end")
	var reported, last Record
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &reported))
	require.NoError(t, json.Unmarshal([]byte(lines[2]), &last))
	require.Equal(t, LinesLost, reported.Event)
	require.EqualValues(t, 4, reported.Lost)
	require.Equal(t, Break, last.Event)
}
