package audit_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server/audit"
	"github.com/leased-project/leased/internal/testserver"
)

// A full disk loses lines, and the first line after it says how many.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	require.NoError(t, os.Symlink("/dev/full", path))
	l := open(t, path)
	for i := range 10 {
		l.Write(context.Background(), audit.Record{Event: audit.Grant})
		testserver.Eventually(t, "the record is lost", func() bool { return l.Lost() == uint64(i+1) })
	}
	require.NoError(t, os.Remove(path))
	l.Reopen()
	testserver.Eventually(t, "the file is there again", func() bool { _, err := os.Lstat(path); return err == nil })
	l.Write(context.Background(), audit.Record{Event: audit.Break})
	l.Close()
	records := read(t, path)
	require.Len(t, records, 2)
	require.Equal(t, audit.LinesLost, records[0].Event)
	require.EqualValues(t, 10, records[0].Lost)
	require.Equal(t, audit.Break, records[1].Event)
}
