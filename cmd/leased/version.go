package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/build"
)

// version is set when a release is built: -ldflags "-X main.version=v1.2.3".
var version = ""

func newVersion() *cobra.Command {
	c := &cobra.Command{Use: "version", Short: "Print the version, the commit, and the formats that this build reads", Args: cobra.NoArgs,
		Long: `Print the version of this build, the commit that it was built from, and the newest
version of each format that it reads. A member whose data is newer does not start, and
says so. The versions of the running members are in 'leased cluster status'.`}
	o := addOutput(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		b := build.Info(version)
		return o.print(c.OutOrStdout(), b, func(t *tabwriter.Writer) { printBuild(t, b) })
	}
	return c
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
func versionText() string { return build.Info(version).Version }
