//go:build unix

package settings_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/internal/server/auth"
)

// A change keeps the owner, the group, the group's read permission and a symbolic
// link.
func TestOwnerIsKept(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "users.yaml"), filepath.Join(dir, "link.yaml")
	_, err := settings.AddUser(path, auth.User{Name: "alice"})
	require.NoError(t, err)
	uid, gid := os.Geteuid(), os.Getegid()
	if uid == 0 {
		gid = 12345 // root:service; others may not give files away
	}
	require.NoError(t, os.Chown(path, uid, gid))
	require.NoError(t, os.Chmod(path, 0o664))
	require.NoError(t, os.Symlink("users.yaml", link))
	_, err = settings.AddUser(link, auth.User{Name: "bob"})
	require.NoError(t, err)
	require.NoError(t, settings.RemoveUser(link, "alice"))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink, "the link stays")
	info, err = os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode().Perm(), "others can neither read nor write it")
	owner := info.Sys().(*syscall.Stat_t)
	require.Equal(t, uid, int(owner.Uid))
	require.Equal(t, gid, int(owner.Gid))
	users, err := settings.ReadUsers(path)
	require.NoError(t, err)
	require.Len(t, users, 1)

	nowhere := filepath.Join(dir, "nowhere.yaml")
	require.NoError(t, os.Symlink("gone.yaml", nowhere))
	_, err = settings.AddUser(nowhere, auth.User{Name: "carol"})
	require.ErrorContains(t, err, "a link to an existing file")
}
