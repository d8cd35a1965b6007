//go:build linux

package abuse

import (
	"bytes"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/secret"
)

// The data folder, a snapshot, the audit log and the log of a member contain no secret
// of a user, also not after calls with wrong ones.
func TestFilesContainNoSecrets(t *testing.T) {
	t.Parallel()
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	s, secrets := startWithUsers(t, map[string][]string{"alice": {"--allow=acquire:*"}}, "--audit-file="+audit,
		"--log-level=debug")
	wrong := secret.New()
	require.Equal(t, http.StatusOK, s.post(secrets["alice"], "/v1/acquire", `{"resource":"a","ttl":"10m"}`).status)
	require.Equal(t, http.StatusForbidden, s.post(secrets["alice"], "/v1/status", `{}`).status)
	require.Equal(t, http.StatusUnauthorized, s.post(wrong, "/v1/acquire", `{"resource":"a"}`).status)
	snapshot := s.post(s.secret, "/v1/save-snapshot", "")
	require.Equal(t, http.StatusOK, snapshot.status)
	require.Contains(t, snapshot.text, "alice", "the snapshot has the owner of the session")
	eventually(t, "the audit log has the refusals", func() bool {
		text, _ := os.ReadFile(audit)
		return bytes.Contains(text, []byte("forbidden")) || bytes.Contains(text, []byte("refus"))
	})
	files := map[string][]byte{"log": []byte(s.text()), "snapshot": []byte(snapshot.text)}
	for _, dir := range []string{s.dir, filepath.Dir(audit)} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			files[path], err = os.ReadFile(path)
			return err
		}))
	}
	require.Greater(t, len(files), 3)
	for name, data := range files {
		for _, text := range []string{secrets["alice"], s.secret, wrong} {
			require.False(t, bytes.Contains(data, []byte(text)), "%s contains a secret", name)
		}
	}
	t.Logf("%d files without a secret", len(files))
}
