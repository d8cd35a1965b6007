//go:build unix

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/golden"
	"github.com/leased-project/leased/internal/testserver"
)

// TestGoldenDataFolder starts a member on a data folder of version 1, with a snapshot and
// entries after it. It serves the same locks, policies and tokens.
func TestGoldenDataFolder(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"wal", "bolt"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			name := "folder-" + kind + ".tar.gz"
			if golden.Updating() {
				makeFolder(t, kind, name)
			}
			data := filepath.Join(t.TempDir(), "one")
			packed := golden.Read(t, name)
			require.Less(t, len(packed), 50<<10)
			unpack(t, packed, data)

			_, api := serveFolder(t, data, kind)
			env := endpoint(api)
			require.Regexp(t, `holder +ann +- +1 `, must(t, env, leased, "inspect", "job/1"), "of the snapshot")
			require.Regexp(t, `holder +ben +- +2 `, must(t, env, leased, "inspect", "job/2"), "of the log")
			exits(t, 120, env, leased, "acquire", "job/1")
			require.Regexp(t, `job/\* +correctness +15m`, must(t, env, leased, "policy", "list"))
			token, err := fencing.ParseToken(tokenOf(t, env, "job/3"))
			require.NoError(t, err)
			require.Equal(t, fencing.Token(3), token)
			must(t, env, leased, "release", "job/1", "--token=1")
		})
	}
}

// serveFolder starts the only member of a data folder.
func serveFolder(t *testing.T, data, kind string) (*process, string) {
	t.Helper()
	api := testserver.FreeAddr(t)
	p := start(t, nil, leased, "serve", "--id=one", "--data="+data, "--listen="+api, "--raft-listen=127.0.0.1:0",
		"--bootstrap-expect=1", "--log-store="+kind)
	healthy(t, api)
	return p, api
}

// makeFolder writes the golden file of a kind of log store.
func makeFolder(t *testing.T, kind, name string) {
	t.Helper()
	data := filepath.Join(t.TempDir(), "one")
	p, api := serveFolder(t, data, kind)
	env := endpoint(api)
	must(t, env, leased, "policy", "set", "job/*", "--mode=correctness", "--ttl=15m")
	must(t, env, leased, "acquire", "job/1", "--holder=ann", "--ttl=1h")
	must(t, env, leased, "snapshot", "save", filepath.Join(t.TempDir(), "saved"))
	must(t, env, leased, "acquire", "job/2", "--holder=ben", "--ttl=1h")
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.code())
	path := filepath.Join("testdata", "golden-v1", name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, pack(t, data), 0o644))
}

// sizeRecord is the size of a file before pack removed the zeros at its end: a log store
// allocates much space in advance.
const sizeRecord = "LEASED.size"

// pack returns the files of a folder as an archive.
func pack(t *testing.T, dir string) []byte {
	t.Helper()
	var packed bytes.Buffer
	zipper, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	require.NoError(t, err)
	archive := tar.NewWriter(zipper)
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		used := bytes.TrimRight(data, "\x00")
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: int64(len(used)),
			ModTime:    time.Unix(0, 0),
			PAXRecords: map[string]string{sizeRecord: strconv.Itoa(len(data))}}); err != nil {
			return err
		}
		_, err = archive.Write(used)
		return err
	}))
	require.NoError(t, archive.Close())
	require.NoError(t, zipper.Close())
	return packed.Bytes()
}

// unpack reverses pack.
func unpack(t *testing.T, packed []byte, dir string) {
	t.Helper()
	zipped, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		path := filepath.Join(dir, header.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		data, err := io.ReadAll(archive)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		size, err := strconv.ParseInt(header.PAXRecords[sizeRecord], 10, 64)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(path, size))
	}
}
