package certmagicstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"testing"

	"github.com/caddyserver/certmagic"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/integrations/certmagicstore"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
)

var (
	database = testserver.Shared{Start: testserver.StartPostgres}
	service  = testserver.Shared{Start: testserver.StartService}
)

func TestMain(m *testing.M) {
	if os.Getenv("PAUSE") != "" {
		os.Exit(child())
	}
	code := m.Run()
	database.Stop()
	service.Stop()
	os.Exit(code)
}

// server is one of the servers of a cluster.
type server struct {
	*certmagicstore.Storage
	locks  *lease.Client
	prefix string
	lost   chan struct{} // receives when the server knows that it has lost a lease
}

func open(ctx context.Context, service, dsn, prefix string) (*server, func(), error) {
	lost := make(chan struct{}, 100)
	hooks := lease.Hooks{Lost: func(context.Context, lease.Event) { lost <- struct{}{} }}
	locks, err := client.Dial(ctx, []string{service}, client.WithLeaseOptions(lease.WithHooks(hooks)))
	if err != nil {
		return nil, nil, err
	}
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, nil, err
	}
	storage, err := certmagicstore.New(locks, db, prefix)
	if err != nil {
		return nil, nil, err
	}
	return &server{storage, locks, prefix, lost}, func() { _ = locks.Close(context.Background()); _ = db.Close() },
		storage.Install(ctx)
}

// newServer returns a server of a cluster with the name of the test. The clusters have
// different locks, but one table.
func newServer(t *testing.T) *server {
	t.Helper()
	s, stop, err := open(testserver.Context(t), service.Get(t).Addr, database.Get(t).DSN, t.Name()+"/")
	require.NoError(t, err)
	t.Cleanup(stop)
	return s
}

func TestMissingTable(t *testing.T) {
	db, err := sql.Open("pgx", database.Get(t).DSN+"&search_path=nowhere")
	require.NoError(t, err)
	defer db.Close()
	storage, err := certmagicstore.New(newServer(t).locks, db, "missing/")
	require.NoError(t, err)
	_, err = storage.Load(testserver.Context(t), "a")
	require.ErrorContains(t, err, "call Install once for the database")
}

// lose ends the lease of a lock, and the lock is free.
func (s *server) lose(t *testing.T, lock string) {
	t.Helper()
	ctx, resource := testserver.Context(t), fencing.Resource(s.prefix+lock)
	status, err := s.locks.Inspect(ctx, resource)
	require.NoError(t, err)
	require.Len(t, status.Holders, 1)
	require.NoError(t, s.locks.Break(ctx, resource, status.Holders[0].Token))
}

// The storage of certmagic in files is the model: the same calls have the same results.
// The tests of certmagic are for that storage only.
func TestSameAsFileStorage(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	files := &certmagic.FileStorage{Path: t.TempDir()}
	missing := func(err error) string {
		if err != nil {
			require.ErrorIs(t, err, fs.ErrNotExist)
			return "missing"
		}
		return ""
	}
	look := func(s certmagic.Storage, key string) string {
		value, err := s.Load(ctx, key)
		text := fmt.Sprintf("%q %v", value, err == nil)
		info, err := s.Stat(ctx, key)
		text += fmt.Sprint("; ", info.IsTerminal, missing(err), s.Exists(ctx, key))
		if err == nil {
			require.False(t, info.Modified.IsZero())
			text += info.Key
		}
		if info.IsTerminal { // a directory has the size of its file system
			text += fmt.Sprint(info.Size)
		}
		for _, recursive := range []bool{false, true} {
			keys, err := s.List(ctx, key, recursive)
			slices.Sort(keys)
			text += fmt.Sprint("; ", keys, missing(err))
		}
		return text
	}
	mine := newServer(t)
	both := func(call func(s certmagic.Storage) error) {
		t.Helper()
		require.NoError(t, call(files))
		require.NoError(t, call(mine))
		for _, key := range []string{"m", "m/a", "m/a/1", "m/a/1/x", "m/a/1/x/deep", "m/a0", "m/a-", "m/b",
			"m/b/.dot", "mm", "n"} {
			require.Equal(t, look(files, key), look(mine, key), key)
		}
	}
	both(func(certmagic.Storage) error { return nil })
	for i, key := range []string{"m/a/1/x/deep", "m/a/2", "m/a0", "m/a-/1", "m/b/.dot", "mm/1", "m/a/2"} {
		both(func(s certmagic.Storage) error { return s.Store(ctx, key, fmt.Append(nil, "value ", i)) })
	}
	both(func(s certmagic.Storage) error { return s.Store(ctx, "m/b/.dot", []byte{0, 255}) })
	both(func(s certmagic.Storage) error { return s.Store(ctx, "m/b/.dot", nil) })
	for _, key := range []string{"m/a/1", "m/a/1", "m/none", "m/a", "m", "mm"} {
		both(func(s certmagic.Storage) error { return s.Delete(ctx, key) })
	}
	require.NoError(t, mine.Store(ctx, "root/a", nil))
	all, err := mine.List(ctx, "", false)
	require.NoError(t, err)
	require.Contains(t, all, "root")
	for _, key := range []string{"", "/a", "a/"} {
		require.ErrorContains(t, mine.Store(ctx, key, nil), "a key")
	}
}

func TestLocks(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	first, second := newServer(t), newServer(t)
	require.ErrorIs(t, first.Unlock(ctx, "a"), lease.ErrNotHeld)
	require.NoError(t, first.Lock(ctx, "a"))
	for _, s := range []*server{first, second} { // in the same process, and in another one
		taken, err := s.TryLock(ctx, "a")
		require.NoError(t, err)
		require.False(t, taken)
		waiting, cancel := context.WithCancel(ctx)
		ended := make(chan error)
		go func() { ended <- s.Lock(waiting, "a") }()
		cancel()
		require.ErrorIs(t, testserver.Receive(t, ended), context.Canceled)
		locked := make(chan error)
		go func() { locked <- s.Lock(ctx, "a") }()
		require.NoError(t, first.Unlock(ctx, "a"))
		require.NoError(t, testserver.Receive(t, locked))
		require.NoError(t, s.Unlock(ctx, "a"))
		taken, err = first.TryLock(ctx, "a")
		require.NoError(t, err)
		require.True(t, taken)
	}
	require.ErrorIs(t, first.Lock(ctx, "\n"), fencing.ErrInvalidResource)
}

// A job that lost its lock keeps it for its process until it unlocks, so that what it writes
// does not carry the token of another job.
func TestLostLockIsNotPassedOnInTheProcess(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	s := newServer(t)
	require.NoError(t, s.Lock(ctx, "a"))
	s.lose(t, "a")
	testserver.Receive(t, s.lost)
	taken, err := s.TryLock(ctx, "a")
	require.NoError(t, err)
	require.False(t, taken)
	require.NoError(t, s.Unlock(ctx, "a"), "a lost lock counts as released")
	require.NoError(t, s.Lock(ctx, "a"))
	require.NoError(t, s.Unlock(ctx, "a"))
}

func TestRenewLockLease(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	first, second := newServer(t), newServer(t)
	renew := func() error { return first.RenewLockLease(ctx, "a", 0) }
	require.ErrorIs(t, renew(), lease.ErrNotHeld)
	require.NoError(t, first.Lock(ctx, "a"))
	require.NoError(t, renew())
	first.lose(t, "a")
	require.NoError(t, second.Lock(ctx, "a"))
	testserver.Receive(t, first.lost)
	require.ErrorIs(t, renew(), lease.ErrHeld)
	require.ErrorIs(t, first.Store(ctx, "renew", nil), fencing.ErrStale)
	require.NoError(t, second.Unlock(ctx, "a"))
	require.NoError(t, renew(), "the next attempt takes the lock again")
	require.NoError(t, first.Store(ctx, "renew", nil), "with a new token")
	taken, err := second.TryLock(ctx, "a")
	require.NoError(t, err)
	require.False(t, taken)
	require.NoError(t, first.Unlock(ctx, "a"))
}

// The locks that guard a key. The next holder has only locked, and not yet written.
func TestWhichLockGuardsWhichKey(t *testing.T) {
	keys := certmagic.StorageKeys
	for lock, test := range map[string]struct{ guarded, other []string }{
		"issue_cert_example.com": {
			guarded: []string{keys.SiteCert("ca", "example.com"), keys.SitePrivateKey("ca", "example.com"),
				keys.SiteMeta("other-ca", "example.com"), keys.CertsSitePrefix("ca", "Example.com"),
				"acme/ca/challenge_tokens/example.com.json"},
			other: []string{keys.SiteCert("ca", "www.example.com"), keys.SiteCert("ca", "*.example.com"),
				"acme/ca/challenge_tokens/example.org.json", "ocsp/example.com-1a2b", "rw_test_17"},
		},
		"issue_cert_*.example.com": {
			guarded: []string{keys.SiteCert("ca", "*.example.com")}, other: []string{keys.SiteCert("ca", "example.com")}},
		"issue_cert_münchen.example":        {guarded: []string{keys.SiteCert("ca", "xn--mnchen-3ya.example")}},
		"issue_cert_2001:0DB8::1":           {guarded: []string{keys.SiteCert("ca", "2001:db8::1")}},
		"storage_clean":                     {guarded: []string{"last_clean.json", keys.SiteCert("ca", "example.com")}},
		"ari_aYhba4dGQEHhs3uEe6CuLN4ByNQ":   {guarded: []string{keys.SiteMeta("ca", "example.com")}},
		"register_acme_account_a@b.example": {guarded: []string{"acme/ca/users/a@b.example/a.key"}},
	} {
		t.Run(lock, func(t *testing.T) {
			t.Parallel()
			ctx := testserver.Context(t)
			first, second := newServer(t), newServer(t)
			require.NoError(t, first.Lock(ctx, lock))
			for _, key := range slices.Concat(test.guarded, test.other) {
				require.NoError(t, first.Store(ctx, t.Name()+"/"+key, nil))
			}
			first.lose(t, lock)
			require.NoError(t, second.Lock(ctx, lock))
			for _, key := range test.guarded {
				require.ErrorIs(t, first.Store(ctx, t.Name()+"/"+key, nil), fencing.ErrStale, key)
				require.ErrorIs(t, first.Delete(ctx, t.Name()+"/"+key), fencing.ErrStale, key)
				require.True(t, first.Exists(ctx, t.Name()+"/"+key))
			}
			for _, key := range test.other {
				require.NoError(t, first.Store(ctx, t.Name()+"/"+key, nil), key)
				require.NoError(t, first.Delete(ctx, t.Name()+"/"+key), key)
			}
			require.NoError(t, first.Unlock(ctx, lock))
			require.NoError(t, second.Unlock(ctx, lock))
		})
	}
}

// A write under several locks carries all their tokens.
func TestWriteUnderTwoLocks(t *testing.T) {
	t.Parallel()
	ctx := testserver.Context(t)
	first, second := newServer(t), newServer(t)
	for _, lock := range []string{"a", "b"} {
		require.NoError(t, first.Lock(ctx, "a"))
		require.NoError(t, first.Lock(ctx, "b"))
		require.NoError(t, first.Store(ctx, "two", nil))
		first.lose(t, lock)
		require.NoError(t, second.Lock(ctx, lock))
		require.ErrorIs(t, first.Store(ctx, "two", nil), fencing.ErrStale, lock)
		for _, lock := range []string{"a", "b"} {
			require.NoError(t, first.Unlock(ctx, lock))
		}
		require.NoError(t, second.Unlock(ctx, lock))
	}
}
