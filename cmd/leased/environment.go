package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/metadata"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/lease/engine"
)

// commandVariables are the environment variables that are not settings of `leased
// serve`: of clients, and those that `leased run` gives to its command.
var commandVariables = []string{"LEASED_ENDPOINT", postgresVariable, "LEASED_CONFIG", "LEASED_SECRET", "LEASED_TOKEN",
	"LEASED_RESOURCE", "LEASED_SIGNED_TOKEN", "LEASED_CLIENT_TLS_CA", "LEASED_CLIENT_TLS_CERT", "LEASED_CLIENT_TLS_KEY",
	"LEASED_CLIENT_SECRET_FILE"}

// serviceLinks matches the variables that Kubernetes sets for a service named leased.
var serviceLinks = regexp.MustCompile(`^LEASED_(.*_)?(SERVICE_HOST|SERVICE_PORT.*|PORT|PORT_\d+_(TCP|UDP|SCTP).*)$`)

// maxTypos is the largest distance at which a known name is suggested for an unknown
// one.
const maxTypos = 3

// unknownVariable is an environment variable that no command reads.
type unknownVariable struct{ name, nearest string }

// hint returns what the user may have meant.
func (u unknownVariable) hint() string {
	if u.nearest == "" {
		return "`leased serve --help` lists all settings"
	}
	return "did you mean " + u.nearest + "?"
}

// unknownVariables returns the LEASED_ variables of an environment that no command
// reads: a misspelled one would be ignored.
func unknownVariables(environ []string) (unknown []unknownVariable) {
	known := append(settings.Variables(), commandVariables...)
	slices.Sort(known)
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "LEASED_") || slices.Contains(known, name) || serviceLinks.MatchString(name) {
			continue
		}
		u := unknownVariable{name: name}
		best := maxTypos + 1
		for _, other := range known {
			if d := distance(name, other); d < best {
				best, u.nearest = d, other
			}
		}
		unknown = append(unknown, u)
	}
	return unknown
}

// warnUnknownVariables prints a warning for each unknown variable. `leased serve` logs
// them itself; commands that other commands or a shell start say nothing.
func warnUnknownVariables(c *cobra.Command, environ []string) {
	if c.Hidden || c.Name() == "serve" || strings.HasPrefix(c.Name(), cobra.ShellCompRequestCmd) {
		return
	}
	printUnknownVariables(c.ErrOrStderr(), environ)
}

func printUnknownVariables(w io.Writer, environ []string) {
	for _, u := range unknownVariables(environ) {
		fmt.Fprintf(w, "leased: warning: unknown environment variable %s; %s\n", u.name, u.hint())
	}
}

// distance returns the number of characters to insert, delete or replace that turn one
// text into another.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// traceVariable is the environment variable with the W3C traceparent of the span in which
// a command runs. It is a convention of OpenTelemetry: CI systems and shells set it, and
// `leased run` passes it on to its command.
const traceVariable = "TRACEPARENT"

var traceparentForm = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// withTraceparent returns a context whose calls of the service belong to a trace. Another
// text than a traceparent is ignored.
func withTraceparent(ctx context.Context, text string) context.Context {
	if !traceparentForm.MatchString(text) {
		return ctx
	}
	ctx = engine.WithTrace(ctx, &engine.Trace{Parent: text})
	return metadata.AppendToOutgoingContext(ctx, "traceparent", text)
}
