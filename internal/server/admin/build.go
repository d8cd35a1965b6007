package admin

import (
	"cmp"
	"runtime"
	"runtime/debug"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing/signature"
	"github.com/leased-project/leased/internal/server/audit"
	"github.com/leased-project/leased/internal/server/observe"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/machine"
	"github.com/leased-project/leased/raftstore/replica"
	"github.com/leased-project/leased/raftstore/transport"
	"github.com/leased-project/leased/redlockadapter/scripts"
)

// formats has the newest version of each format that this build reads. The names are in
// docs/adr/0030-frozen-formats.md.
var formats = map[string]uint32{
	"api":            1,
	"append-entries": transport.AppendVersion,
	"audit":          audit.LineVersion,
	"commands":       machine.CommandVersion,
	"data-folder":    raftstore.FolderVersion,
	"log-entry":      replica.EntryVersion,
	"machine-state":  machine.SnapshotVersion,
	"raft-snapshot":  replica.StateVersion,
	"redis":          scripts.FormatVersion,
	"signed-token":   signature.Version,
	"snapshot-file":  raftstore.SnapshotFileVersion,
	"times":          observe.FileVersion,
}

// commitDigits is the length of a commit in a version.
const commitDigits = 12

// BuildInfo describes this build. version is the name of the release; if it is empty, the
// version is made from the commit.
func BuildInfo(version string) *pb.Build {
	b := &pb.Build{Version: version, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Formats: formats}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		b.Version = cmp.Or(version, "unknown")
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.CommitTime = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	if b.Version == "" && len(b.Commit) >= commitDigits {
		b.Version = "devel-" + b.Commit[:commitDigits]
	}
	b.Version = cmp.Or(b.Version, info.Main.Version, "unknown")
	return b
}
