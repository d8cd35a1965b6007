package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/leased-project/leased/lease/remote/secret"
)

// plainHandler writes log records in the form of the commands' messages, one line
// each.
type plainHandler struct {
	out   io.Writer
	level slog.Level
}

var _ slog.Handler = (*plainHandler)(nil)

// Enabled reports whether records of the level are written.
func (h *plainHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

// Handle writes a record as one line.
func (h *plainHandler) Handle(_ context.Context, r slog.Record) error {
	text := "leased: " + strings.TrimPrefix(r.Message, "leased: ")
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" {
			text += ": " + a.Value.String()
		} else {
			text += fmt.Sprintf(", %s %s", a.Key, a.Value)
		}
		return true
	})
	_, err := fmt.Fprintln(h.out, secret.Hide(oneLine(text)))
	return err
}

// WithAttrs returns the same handler: it omits attributes of the logger.
func (h *plainHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup returns the same handler: it omits groups.
func (h *plainHandler) WithGroup(string) slog.Handler { return h }
