//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// auditLine is a line of an audit log.
type auditLine struct {
	Event, User, Subject, Detail string
	Resources                    []string
	Token                        uint64
}

func auditLines(t *testing.T, path string) (lines []auditLine) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var l auditLine
		require.NoError(t, json.Unmarshal([]byte(line), &l), line)
		lines = append(lines, l)
	}
	return lines
}

// While clients acquire locks, the file is renamed and SIGHUP is sent, as logrotate
// does it. Each grant is in one of the files, once.
func TestAuditRotation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	p, api := single(t, "--audit-file="+path)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	const clients, each, rotations = 3, 8, 4
	var work sync.WaitGroup
	for c := range clients {
		work.Go(func() {
			for i := range each {
				must(t, endpoint(api), leased, "acquire", fmt.Sprintf("lock/%d/%d", c, i), "--ttl=10m")
			}
		})
	}
	files := []string{path}
	for i := range rotations {
		renamed := filepath.Join(dir, fmt.Sprint(i))
		require.NoError(t, os.Rename(path, renamed))
		files = append(files, renamed)
		p.signal(syscall.SIGHUP)
		eventually(t, func() bool { _, err := os.Stat(path); return err == nil }, "for a new file")
	}
	work.Wait()
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.code())

	seen := map[string]uint64{}
	for _, file := range files {
		for _, line := range auditLines(t, file) {
			require.Equal(t, "grant", line.Event)
			require.Len(t, line.Resources, 1)
			require.Zero(t, seen[line.Resources[0]], "the line is there twice: %+v", line)
			seen[line.Resources[0]] = line.Token
			require.NotZero(t, line.Token)
		}
	}
	require.Len(t, seen, clients*each)
}

// A reload of the users file is recorded, user by user, without hashes. An invalid
// settings file does not keep SIGHUP from reopening the audit file.
func TestAuditOfUsers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	users, config, path := filepath.Join(dir, "users.yaml"), filepath.Join(dir, "leased.yaml"),
		filepath.Join(dir, "audit.log")
	must(t, nil, leased, "user", "add", "alice", "--users="+users, "--allow=acquire:jobs/*")
	must(t, nil, leased, "user", "add", "bob", "--users="+users)
	require.NoError(t, os.WriteFile(config, []byte("audit-file: "+path+"\nusers: "+users+"\n"), 0o600))
	p, _ := single(t, "--config="+config)
	must(t, nil, leased, "user", "remove", "bob", "--users="+users)
	must(t, nil, leased, "user", "remove", "alice", "--users="+users)
	must(t, nil, leased, "user", "add", "alice", "--users="+users, "--admin")
	must(t, nil, leased, "user", "add", "carol", "--users="+users)
	p.signal(syscall.SIGHUP)
	eventually(t, func() bool { return len(auditLines(t, path)) == 3 }, "for the lines")
	for i, want := range []auditLine{{Event: "user-change", Subject: "alice"}, {Event: "user-add", Subject: "carol"},
		{Event: "user-remove", Subject: "bob"}} {
		line := auditLines(t, path)[i]
		require.Equal(t, [2]string{want.Event, want.Subject}, [2]string{line.Event, line.Subject})
		if want.Event == "user-change" {
			require.Contains(t, line.Detail, "acquire:*")
			require.Contains(t, line.Detail, "secrets or certificate changed")
		}
		require.NotContains(t, line.Detail, "sha256")
	}

	require.NoError(t, os.WriteFile(config, []byte("nonsense: x\n"), 0o600))
	require.NoError(t, os.Rename(path, path+".1"))
	p.signal(syscall.SIGHUP)
	p.says("reload failed")
	eventually(t, func() bool { _, err := os.Stat(path); return err == nil }, "for a new file")
}
