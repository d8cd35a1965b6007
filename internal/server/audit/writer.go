package audit

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/internal/secret"
)

// batchSize is the number of bytes after which the writer stops collecting lines for
// one write.
const batchSize = 1 << 16

// linger is how long the writer waits for more lines after the first one.
const linger = 20 * time.Millisecond

// writer is the file, and the lines for its next write.
type writer struct {
	buffer bytes.Buffer
	lines  uint64 // in buffer
	torn   bool   // the file ends with a part of a line
	failed atomic.Pointer[error]
	file   *os.File
}

func openFile(path string) (*os.File, error) {
	if path == "-" {
		return os.Stdout, nil
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}

// endsWithinLine reports whether a file ends with a part of a line: the disk was full, or the machine has lost power.
func endsWithinLine(file *os.File) bool {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return false
	}
	readable, err := os.Open(file.Name())
	if err != nil {
		return false
	}
	defer readable.Close()
	var last [1]byte
	_, err = readable.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
}

// run writes lines until the log is closed.
func (l *Log) run() {
	defer close(l.done)
	for {
		select {
		case r := <-l.queue:
			select { // for more lines: a write for each would cost a busy member more than the lines
			case <-time.After(linger):
			case <-l.stop:
			}
			l.writeBatch(r)
			l.drain()
		case <-l.reopen:
			l.rotate()
		case <-l.stop:
			l.drain()
			l.writer.end(l.config.Path)
			return
		}
	}
}

// drain writes the lines that are waiting.
func (l *Log) drain() {
	for {
		select {
		case r := <-l.queue:
			l.writeBatch(r)
		default:
			return
		}
	}
}

// writeBatch writes a line, and the lines that are waiting behind it, with one call.
// The lines that were lost before them come first.
func (l *Log) writeBatch(r Record) {
	w := &l.writer
	w.buffer.Reset()
	w.lines = 0
	if w.torn {
		w.buffer.WriteByte('\n')
	}
	lost := l.unreported.Swap(0)
	if lost > 0 {
		w.add(Record{Time: r.Time, Member: r.Member, Event: LinesLost, Lost: lost})
	}
	w.add(r)
	for waiting := true; waiting && w.buffer.Len() < batchSize; {
		select {
		case r := <-l.queue:
			w.add(r)
		default:
			waiting = false
		}
	}
	if missing := w.write(); missing > 0 {
		if lost > 0 && missing == w.lines { // the line that reports them is lost, too
			l.unreported.Add(lost)
			missing--
		}
		l.lose(missing)
	}
}

// add encodes a record. Names that callers choose may contain a secret by mistake.
func (w *writer) add(r Record) {
	line, err := json.Marshal(r)
	if err != nil {
		return // all fields have an encoding
	}
	if text := string(line); secret.In(text) {
		line = []byte(secret.Hide(text))
	}
	w.buffer.Write(line)
	w.buffer.WriteByte('\n')
	w.lines++
}

// write writes the buffer and returns the number of lines that the file does not
// contain completely.
func (w *writer) write() (missing uint64) {
	data := w.buffer.Bytes()
	n, err := w.file.Write(data)
	if err == nil {
		w.failed.Store(nil)
		w.torn = false
		return 0
	}
	w.failed.Store(&err)
	if n > 0 {
		w.torn = data[n-1] != '\n'
	}
	ends := strings.Count(string(data[n:]), "\n")
	return min(uint64(ends), w.lines) // the buffer may begin with the end of the line before
}

// failure returns the error of the last write, or nil.
func (w *writer) failure() error {
	if err := w.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// rotate opens the path again.
func (l *Log) rotate() {
	if l.config.Path == "-" {
		return
	}
	file, err := openFile(l.config.Path)
	if err != nil {
		l.config.Logger.Error("could not reopen the audit log; it stays in the old file", "file", l.config.Path, "error", err)
		return
	}
	w := &l.writer
	w.end(l.config.Path)
	w.file, w.torn = file, endsWithinLine(file)
}

// end syncs and closes the file.
func (w *writer) end(path string) {
	if path == "-" {
		return
	}
	_ = w.file.Sync() // a pipe cannot be synced
	_ = w.file.Close()
}

// attributes returns the fields of a record for the ordinary log.
func (r *Record) attributes() []slog.Attr {
	attributes := []slog.Attr{slog.String("event", string(r.Event))}
	for _, field := range []struct{ name, value string }{{"user", r.User}, {"address", r.Address}, {"method", r.Method},
		{"holder", r.Holder},
		{"resources", strings.Join(r.Resources, ",")}, {"mode", r.Mode}, {"subject", r.Subject}, {"code", r.Code},
		{"detail", r.Detail}} {
		if field.value != "" {
			attributes = append(attributes, slog.String(field.name, field.value))
		}
	}
	if r.Token != 0 {
		attributes = append(attributes, slog.Uint64("token", r.Token))
	}
	return attributes
}
