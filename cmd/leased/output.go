package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/leased-project/leased/cmd/leased/internal/terminal"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/httpapi"
)

// output is the output format of a command.
type output struct{ format string }

func addOutput(c *cobra.Command) *output {
	o := &output{}
	c.Flags().StringVarP(&o.format, "output", "o", "table", "output format: table or json")
	check := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if o.format != "table" && o.format != "json" {
			return usageError(fmt.Errorf("output (%s) must be table or json", o.format))
		}
		if check != nil {
			return check(c, args)
		}
		return nil
	}
	return o
}

// print writes a value as JSON, or calls table to write it as text.
func (o *output) print(c *cobra.Command, m any, table func(t *tabwriter.Writer)) error {
	if o.format == "json" {
		return printJSON(c.OutOrStdout(), m, "  ")
	}
	t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	table(t)
	return t.Flush()
}

// say writes the answer of a call as JSON, or a sentence as text. It returns err, the error of the call.
func (o *output) say(c *cobra.Command, m proto.Message, err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	if o.format == "json" {
		return printJSON(c.OutOrStdout(), m, "  ")
	}
	return say(c, format, args...)
}

// say prints a line.
func say(c *cobra.Command, format string, args ...any) error {
	_, err := fmt.Fprintf(c.OutOrStdout(), format+"\n", args...)
	return err
}

// printJSON writes a value as JSON, and a message exactly as the HTTP API does.
func printJSON(w io.Writer, value any, indent string) error {
	if m, ok := value.(proto.Message); ok {
		value = json.RawMessage(httpapi.Encode(m))
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", indent)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// row writes one line of a table, with a dash for an empty cell. Characters that cannot
// be printed are escaped: clients choose the names of locks and holders.
func row(t *tabwriter.Writer, cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		if texts[i] = terminal.Clean(fmt.Sprint(cell)); texts[i] == "" {
			texts[i] = "-"
		}
	}
	fmt.Fprintln(t, strings.Join(texts, "\t"))
}

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
