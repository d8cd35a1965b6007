//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A member that starts from an older copy of its data folder is refused and stops. The
// others go on. It joins again after it was removed and its folder was emptied.
func TestRestoredFolderIsRefused(t *testing.T) {
	t.Parallel()
	c := startTrio(t)
	back := (c.leader() + 1) % 3
	id, data := string(rune('a'+back)), c.commands[back][slices.Index(c.commands[back], "--data")+1]
	status := func() string {
		out, _ := call(t, c.env(), leased, "cluster", "status")
		return out
	}
	follows := func() bool { // with a vote and all entries
		for line := range strings.Lines(status()) {
			if fields := strings.Fields(line); len(fields) > 7 && fields[0] == id {
				return fields[1] == "follower" && fields[2] == "yes" && fields[7] == "0"
			}
		}
		return false
	}
	run := func() { must(t, c.env(), leased, "run", "nightly", "--wait=30s", "--", "true") }
	stop := func() {
		c.servers[back].signal(syscall.SIGKILL)
		c.servers[back].code()
	}
	run()
	eventually(t, follows, "for member %s", id)
	stop()
	copied := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(copied, os.DirFS(data)))
	c.start(back)
	eventually(t, follows, "for member %s", id)
	for range 3 {
		run()
	}
	eventually(t, follows, "for the entries")
	stop()
	require.NoError(t, os.RemoveAll(data))
	require.NoError(t, os.CopyFS(data, os.DirFS(copied)))

	c.start(back)
	c.servers[back].says("gone back in time")
	require.Equal(t, 3, c.servers[back].code())
	require.Contains(t, status(), "went back")
	run()
	out, code := call(t, nil, c.commands[back]...)
	require.NotZero(t, code)
	require.Contains(t, out, "empty its data folder")

	c.remove(id)
	require.NoError(t, os.RemoveAll(data))
	c.start(back)
	eventually(t, follows, "for member %s to join", id)
	run()
}
