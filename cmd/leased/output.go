package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/leased-project/leased/cmd/leased/internal/terminal"
)

// output is the output format of a command.
type output struct{ format string }

func addOutput(c *cobra.Command) *output {
	o := &output{}
	c.Flags().StringVarP(&o.format, "output", "o", "table", "output format: table or json")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
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

// print writes a message of the API as JSON, or calls table to write it as text.
func (o *output) print(w io.Writer, m proto.Message, table func(t *tabwriter.Writer)) error {
	if o.format == "json" {
		return printJSON(w, m, "  ")
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	table(t)
	return t.Flush()
}

// say writes a message of the API as JSON, or a sentence as text.
func (o *output) say(c *cobra.Command, m proto.Message, format string, args ...any) error {
	if o.format == "json" {
		return printJSON(c.OutOrStdout(), m, "  ")
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), format+"\n", args...)
	return err
}

// printJSON writes a message with the names that the HTTP API uses.
func printJSON(w io.Writer, m proto.Message, indent string) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", indent)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(plain(m.ProtoReflect()))
}

// plain converts a message to maps, lists and values. Numbers stay numbers: all of
// them are below 2^53.
func plain(m protoreflect.Message) map[string]any {
	object := map[string]any{}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			entries := map[string]any{}
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				entries[k.String()] = v.Interface()
				return true
			})
			object[f.JSONName()] = entries
		case f.IsList():
			list := make([]any, v.List().Len())
			for i := range list {
				list[i] = plainValue(f, v.List().Get(i))
			}
			object[f.JSONName()] = list
		default:
			object[f.JSONName()] = plainValue(f, v)
		}
		return true
	})
	return object
}

func plainValue(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	if f.Message() != nil {
		return plain(v.Message())
	}
	return v.Interface()
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
