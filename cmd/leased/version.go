package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/admin"
)

// version is set when a release is built: -ldflags "-X main.version=v1.2.3".
var version = ""

func setUpVersion(c *cobra.Command) {
	o := addOutput(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		b := admin.BuildInfo(version)
		return o.print(c, b, func(t *tabwriter.Writer) { printBuild(t, b) })
	}
}

// printBuild writes a build as a table.
func printBuild(t *tabwriter.Writer, b *pb.Build) {
	row(t, "leased", b.Version)
	row(t, "commit", commitText(b))
	row(t, "go", b.GoVersion)
	row(t, "platform", b.Platform)
	var formats []string
	for _, name := range slices.Sorted(maps.Keys(b.Formats)) {
		formats = append(formats, fmt.Sprint(name, " ", b.Formats[name]))
	}
	row(t, "formats", strings.Join(formats, ", "))
}

// commitText returns the commit of a build with its time.
func commitText(b *pb.Build) string {
	switch {
	case b.Commit == "":
		return "unknown"
	case b.Modified:
		return fmt.Sprintf("%s of %s, with changes that were not committed", b.Commit, b.CommitTime)
	}
	return fmt.Sprintf("%s of %s", b.Commit, b.CommitTime)
}

// versionText returns the version that members report.
func versionText() string { return admin.BuildInfo(version).Version }
