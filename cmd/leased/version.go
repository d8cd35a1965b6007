package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
)

// version is set when a release is built: -ldflags "-X main.version=v1.2.3".
var version = ""

func newVersion() *cobra.Command {
	c := &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs}
	o := addOutput(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return o.say(c, &pb.StatusResponse{Version: versionText()}, "leased %s %s %s/%s", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	}
	return c
}

// versionText returns the release, or else the commit that was built.
func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel " + s.Value[:12]
		}
	}
	return info.Main.Version
}
