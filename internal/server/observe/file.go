package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/leased-project/leased/lease/engine"
)

const (
	// FileName is the name of the file in the data folder of a member.
	FileName = "times.json"
	// FileVersion is the version of the format of the file.
	FileVersion = 1
	// saveInterval is the time between two writes of the file.
	saveInterval = time.Minute
)

// times is the content of the file: the samples of a Recorder. The file serves only for
// display: without it, a member does not know since when old leases have been held.
type times struct {
	Version uint64     `json:"version"`
	Tokens  [][4]int64 `json:"tokens"` // start and end in milliseconds, first and last token
	Orders  [][4]int64 `json:"orders"`
}

// Load reads the samples of an earlier process from a file, if there is one. Call it before
// the node is opened. An empty path means no file.
func (r *Recorder) Load(path string) error {
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the times of grants: %w", err)
	}
	var found times
	if err := json.Unmarshal(text, &found); err != nil {
		return fmt.Errorf("read the times of grants from %s: %w", path, err)
	}
	if err := engine.CheckFormat("file of the times of grants", found.Version, FileVersion); err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	tokens, orders := fromRows(found.Tokens), fromRows(found.Orders)
	if !tokens.valid() || !orders.valid() {
		return fmt.Errorf("read the times of grants from %s: the samples are not in order", path)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens, r.orders = tokens, orders
	return nil
}

// Save writes the samples to a file, unless they have not changed since the last call.
func (r *Recorder) Save(path string) error {
	r.mu.Lock()
	text, err := json.Marshal(times{Version: FileVersion, Tokens: r.tokens.rows(), Orders: r.orders.rows()})
	unchanged := string(text) == r.saved
	r.mu.Unlock()
	if err != nil || unchanged {
		return err
	}
	// A crash may leave an old or an empty file. Both are harmless, so nothing is synced.
	fresh := path + ".new"
	if err := os.WriteFile(fresh, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the times of grants: %w", err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("write the times of grants: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saved = string(text)
	return nil
}

// KeepSaved saves the samples once a minute, and when ctx ends. An empty path means no file.
func (r *Recorder) KeepSaved(ctx context.Context, path string, logger *slog.Logger) {
	if path == "" {
		return
	}
	for ended := false; !ended; {
		ended = engine.Sleep(ctx, saveInterval) != nil
		if err := r.Save(path); err != nil {
			logger.Warn("after a restart, the times of earlier grants will be unknown", "error", err)
		}
	}
}

func (s *series) rows() [][4]int64 {
	rows := [][4]int64{}
	for _, x := range s.samples {
		rows = append(rows, [4]int64{x.Start, x.End, int64(x.First), int64(x.Last)})
	}
	return rows
}

// fromRows returns a series that continues in another process, with a gap after the last
// sample.
func fromRows(rows [][4]int64) series {
	s := series{closed: true}
	for _, x := range rows {
		s.samples = append(s.samples, sample{x[0], x[1], uint64(x[2]), uint64(x[3])})
	}
	return s
}
