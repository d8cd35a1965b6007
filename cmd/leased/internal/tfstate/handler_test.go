package tfstate_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/cmd/leased/internal/tfstate"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore/memory"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/filegate"
	"github.com/leased-project/leased/storagegate/objectgate"
)

var (
	database = testserver.Shared{Start: testserver.StartPostgres}
	store    = testserver.Shared{Start: func() (*testserver.Server, error) {
		return testserver.StartVersityGW("../../../../storagegate/objectgate/testdata/versitygw")
	}}
)

func TestMain(m *testing.M) {
	code := m.Run()
	database.Stop()
	store.Stop()
	os.Exit(code)
}

// storages open the same storage again and again, as several processes would.
var storages = map[string]func(t *testing.T) func() tfstate.Storage{
	"files": func(t *testing.T) func() tfstate.Storage {
		dir := t.TempDir()
		return func() tfstate.Storage {
			s, err := tfstate.Files(dir)
			require.NoError(t, err)
			return s
		}
	},
	"postgres": func(t *testing.T) func() tfstate.Storage {
		pool, err := pgxpool.New(testserver.Context(t), database.Get(t).DSN)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		return func() tfstate.Storage {
			s, err := tfstate.Postgres(testserver.Context(t), pool)
			require.NoError(t, err)
			return s
		}
	},
	"s3": func(t *testing.T) func() tfstate.Storage {
		endpoint, bucket := "http://"+store.Get(t).Addr, fmt.Sprintf("%x", md5.Sum([]byte(t.Name())))
		client := s3.New(s3.Options{BaseEndpoint: &endpoint, Region: "us-east-1", UsePathStyle: true,
			Credentials: credentials.NewStaticCredentialsProvider(testserver.S3User, testserver.S3Password, "")})
		_, err := client.CreateBucket(testserver.Context(t), &s3.CreateBucketInput{Bucket: &bucket})
		require.NoError(t, err)
		return func() tfstate.Storage { return tfstate.Objects(objectgate.New(client, bucket, fencing.Rule{})) }
	},
}

// site is a lock service and a storage that several servers share.
type site struct {
	t       *testing.T
	name    string // of the state
	engine  *memory.Backend
	storage func() tfstate.Storage
}

// everyStorage runs a test with each storage.
func everyStorage(t *testing.T, test func(t *testing.T, s *site)) {
	for name, open := range storages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newSite(t, open(t)))
		})
	}
}

func newSite(t *testing.T, storage func() tfstate.Storage) *site {
	engine, err := memory.New()
	require.NoError(t, err)
	return &site{t: t, name: strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")), engine: engine, storage: storage}
}

// server is one process that serves the states, and the URL of the state.
type server struct {
	t     *testing.T
	url   string
	locks *lease.Client
}

func (s *site) server(storage tfstate.Storage, users map[string]string) *server {
	return s.serverWithLog(storage, users, slog.DiscardHandler)
}

func (s *site) serverWithLog(storage tfstate.Storage, users map[string]string, log slog.Handler) *server {
	locks, err := lease.New(s.engine)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = locks.Close(context.Background()) })
	h := httptest.NewServer(tfstate.New(locks, storage,
		tfstate.Config{Prefix: "tfstate/", Users: users, Log: slog.New(log)}))
	s.t.Cleanup(h.Close)
	return &server{s.t, h.URL + "/" + s.name, locks}
}

// do sends a request and returns the status and the body.
func (s *server) do(method, query, body string, change ...func(*http.Request)) (int, string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(testserver.Context(s.t), method, s.url+query, strings.NewReader(body))
	require.NoError(s.t, err)
	for _, f := range change {
		f(request)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return response.StatusCode, string(content)
}

// want sends a request that must have this status, and returns the body.
func (s *server) want(status int, method, query, body string, change ...func(*http.Request)) string {
	s.t.Helper()
	got, content := s.do(method, query, body, change...)
	require.Equal(s.t, status, got, content)
	return content
}

func info(id string) string {
	text, _ := json.Marshal(tfstate.LockInfo{ID: id, Operation: "OperationTypeApply", Who: id + "@host", Version: "1.12.6",
		Created: "2026-11-16T00:00:00Z"})
	return string(text)
}

func state(serial int) string { return fmt.Sprintf(`{"version":4,"serial":%d,"lineage":"x"}`, serial) }

func TestProtocol(t *testing.T) {
	everyStorage(t, func(t *testing.T, site *site) {
		s, other := site.server(site.storage(), nil), site.server(site.storage(), nil)
		require.Contains(t, s.want(http.StatusNotFound, "GET", "", ""), "nothing has been written")
		require.Contains(t, s.want(http.StatusConflict, "POST", "", state(1)), "set lock_address")
		s.want(http.StatusOK, "LOCK", "", info("anna"))
		s.want(http.StatusOK, "LOCK", "", info("anna")) // repeated
		var held tfstate.LockInfo
		require.NoError(t, json.Unmarshal([]byte(other.want(http.StatusLocked, "LOCK", "", info("bert"))), &held))
		require.Equal(t, info("anna"), info(held.ID))
		require.Equal(t, "anna@host", held.Who)
		other.want(http.StatusLocked, "UNLOCK", "", info("bert"))
		require.Contains(t, other.want(http.StatusLocked, "DELETE", "?ID=anna", ""), "unlock the state first")
		require.Contains(t, other.want(http.StatusLocked, "POST", "?restore=1&ID=anna", ""), "by anna@host")
		s.want(http.StatusConflict, "POST", "?ID=bert", state(1))
		s.want(http.StatusBadRequest, "POST", "?ID=anna", state(1), func(r *http.Request) {
			r.Header.Set("Content-MD5", "x")
		})
		sum := md5.Sum([]byte(state(1)))
		s.want(http.StatusOK, "POST", "?ID=anna", state(1), func(r *http.Request) {
			r.Header.Set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
		})
		s.want(http.StatusOK, "POST", "?ID=anna", state(1)) // repeated
		other.want(http.StatusOK, "POST", "?ID=anna", state(2))
		require.Equal(t, state(2), other.want(http.StatusOK, "GET", "", ""))
		s.want(http.StatusOK, "UNLOCK", "", info("anna"))
		s.want(http.StatusOK, "UNLOCK", "", info("anna")) // repeated
		s.want(http.StatusConflict, "POST", "?ID=anna", state(3))

		other.want(http.StatusOK, "POST", "?restore=1", "")
		require.JSONEq(t, state(3), s.want(http.StatusOK, "GET", "", ""))
		s.want(http.StatusOK, "DELETE", "", "")
		require.Contains(t, s.want(http.StatusNotFound, "GET", "", ""), "version 4 deleted the state")
		require.Equal(t, state(2), s.want(http.StatusOK, "GET", "?version=2", ""))
		s.want(http.StatusNotFound, "GET", "?version=4", "")
		require.Contains(t, s.want(http.StatusNotFound, "POST", "?restore=9", ""), "there is no version 9")
		var versions []tfstate.Version
		require.NoError(t, json.Unmarshal([]byte(s.want(http.StatusOK, "GET", "?versions", "")), &versions))
		require.Len(t, versions, 4)
		require.Equal(t, []any{1, uint64(1), "anna@host", "OperationTypeApply"},
			[]any{versions[0].Number, versions[0].Serial, versions[0].Who, versions[0].Operation})
		require.Equal(t, []any{uint64(3), "restore version 1"}, []any{versions[2].Serial, versions[2].Operation})
		s.want(http.StatusOK, "LOCK", "", info("bert"))
	})
}

// Terraform and OpenTofu apply a saved plan if the state still has the lineage and the serial that it was planned
// against. So no two versions may have the same serial. Nothing else in a restored state may change.
func TestRestoreRaisesTheSerial(t *testing.T) {
	site := newSite(t, storages["files"](t))
	s := site.server(site.storage(), nil)
	const old = `{"version":4,"serial":%d,"lineage":"x","outputs":{"big":{"value":12345678901234567890.10}}}`
	const encrypted = `{"serial":2,"lineage":"x","meta":{},"encrypted_data":"eA==","encryption_version":"v0"}`
	s.want(http.StatusOK, "LOCK", "", info("anna"))
	for _, content := range []string{fmt.Sprintf(old, 1), state(7), encrypted} {
		s.want(http.StatusOK, "POST", "?ID=anna", content)
	}
	s.want(http.StatusOK, "UNLOCK", "", info("anna"))

	require.JSONEq(t, `{"serial":8}`, s.want(http.StatusOK, "POST", "?restore=1", ""))
	got := s.want(http.StatusOK, "GET", "", "")
	require.JSONEq(t, fmt.Sprintf(old, 8), got)
	require.Contains(t, got, "12345678901234567890.10")
	s.want(http.StatusOK, "POST", "?restore=4", "")
	require.JSONEq(t, fmt.Sprintf(old, 9), s.want(http.StatusOK, "GET", "", ""))

	require.Contains(t, s.want(http.StatusOK, "POST", "?restore=3", ""), "delete saved plans")
	require.Equal(t, encrypted, s.want(http.StatusOK, "GET", "", ""))
}

// States contain secrets. Only their owner can read them, also in a folder that others can read.
func TestFilesArePrivate(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	site := newSite(t, func() tfstate.Storage {
		s, err := tfstate.Files(dir)
		require.NoError(t, err)
		return s
	})
	s := site.server(site.storage(), nil)
	s.want(http.StatusOK, "LOCK", "", info("anna"))
	s.want(http.StatusOK, "POST", "?ID=anna", state(1))
	files, err := filepath.Glob(dir + "/tfstate*")
	require.NoError(t, err)
	require.Len(t, files, 2) // the index and a state
	for _, name := range files {
		file, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), file.Mode().Perm(), name)
	}
}

// The lease shows who holds the lock.
func TestLockInfoIsMetadata(t *testing.T) {
	site := newSite(t, storages["files"](t))
	s := site.server(site.storage(), nil)
	long := tfstate.LockInfo{ID: "anna", Who: "anna@host", Operation: "OperationTypePlan", Info: strings.Repeat("é", 5000)}
	text, err := json.Marshal(long)
	require.NoError(t, err)
	s.want(http.StatusOK, "LOCK", "", string(text))
	status, err := s.locks.Inspect(testserver.Context(t), fencing.Resource("tfstate/"+site.name))
	require.NoError(t, err)
	require.Len(t, status.Holders, 1)
	require.Equal(t, "anna@host", status.Holders[0].Metadata["who"])
	require.Equal(t, "OperationTypePlan", status.Holders[0].Metadata["operation"])
}

// After force-unlock, the run that had the lock cannot write, even if nobody locks the state again.
func TestForceUnlock(t *testing.T) {
	for _, body := range []string{info("anna"), ""} { // old releases send no ID
		t.Run(fmt.Sprint(len(body) > 0), func(t *testing.T) {
			everyStorage(t, func(t *testing.T, site *site) {
				first, operator := site.server(site.storage(), nil), site.server(site.storage(), nil)
				first.want(http.StatusOK, "LOCK", "", info("anna"))
				operator.want(http.StatusOK, "UNLOCK", "", body)
				first.want(http.StatusConflict, "POST", "?ID=anna", state(1))
				operator.want(http.StatusOK, "LOCK", "", info("bert"))
				operator.want(http.StatusOK, "POST", "?ID=bert", state(2))
				refused := first.want(http.StatusConflict, "POST", "?ID=anna", state(1))
				require.Contains(t, refused, "do not push")
				require.NotContains(t, refused, "lock_address")
				require.Equal(t, state(2), first.want(http.StatusOK, "GET", "", ""))
			})
		})
	}
}

// The ID of a lock belongs to its client, which may use one for several states: each is locked and unlocked by itself.
func TestOneIDForTwoStates(t *testing.T) {
	site := newSite(t, storages["files"](t))
	s, other := site.server(site.storage(), nil), site.server(site.storage(), nil)
	for _, path := range []string{"/a", "/b"} {
		s.want(http.StatusOK, "LOCK", path, info("ci"))
	}
	s.want(http.StatusOK, "UNLOCK", "/a", info("ci"))
	other.want(http.StatusOK, "LOCK", "/a", info("bert"))
	s.want(http.StatusOK, "UNLOCK", "/c", info("ci")) // not locked
	other.want(http.StatusLocked, "LOCK", "/b", info("bert"))
	s.want(http.StatusOK, "UNLOCK", "/b", info("ci"))
	other.want(http.StatusOK, "LOCK", "/b", info("bert"))
}

// A server whose lock was ended by another one does not take its lost lease for the present one.
func TestUnlockOfALaterLockWithTheSameID(t *testing.T) {
	site := newSite(t, storages["files"](t))
	first, second := site.server(site.storage(), nil), site.server(site.storage(), nil)
	first.want(http.StatusOK, "LOCK", "", info("ci"))
	second.want(http.StatusOK, "UNLOCK", "", info("ci"))
	second.want(http.StatusOK, "LOCK", "", info("ci"))
	first.want(http.StatusOK, "UNLOCK", "", info("ci"))
	first.want(http.StatusOK, "LOCK", "", info("bert"))
}

// slow is a Storage that waits before it updates the index, as a process does that is paused there.
type slow struct {
	tfstate.Storage
	once   sync.Once
	pause  func()
	paused bool
}

func (s *slow) Update(ctx context.Context, resource fencing.Resource, token fencing.Token,
	change func([]byte) ([]byte, error)) error {
	if s.paused && token != fencing.None {
		s.once.Do(s.pause)
	}
	return s.Storage.Update(ctx, resource, token, change)
}

// A server is paused between its check of the lock and its write, the lease is lost, and another run
// locks the state, has not yet written, and has the same ID. Only the token tells them apart.
func TestStaleTokenIsRefused(t *testing.T) {
	everyStorage(t, func(t *testing.T, site *site) {
		paused := &slow{Storage: site.storage()}
		first, second := site.server(paused, nil), site.server(site.storage(), nil)
		first.want(http.StatusOK, "LOCK", "", info("anna"))
		paused.paused, paused.pause = true, func() {
			second.want(http.StatusOK, "UNLOCK", "", info("anna"))
			second.want(http.StatusOK, "LOCK", "", info("anna"))
		}
		body := first.want(http.StatusConflict, "POST", "?ID=anna", state(1))
		require.Contains(t, body, "stale fencing token")
		second.want(http.StatusNotFound, "GET", "", "")
		second.want(http.StatusOK, "POST", "?ID=anna", state(2))
	})
}

// interrupted is a Storage that reports that it has not updated the index, after a pause.
type interrupted struct {
	tfstate.Storage
	pause func()
}

func (s *interrupted) Update(context.Context, fencing.Resource, fencing.Token, func([]byte) ([]byte, error)) error {
	s.pause()
	return context.DeadlineExceeded
}

// A server is paused before it records a lock, and the client repeats the request at another server, which confirms the
// lock. The first server then fails to record it, and does not release the lease: the run has the lock. Without the
// repetition it does.
func TestFailedLockKeepsItsRepetition(t *testing.T) {
	site := newSite(t, storages["files"](t))
	second := site.server(site.storage(), nil)
	paused := &interrupted{site.storage(), func() { second.want(http.StatusOK, "LOCK", "", info("anna")) }}
	first := site.server(paused, nil)
	first.want(http.StatusOK, "LOCK", "", info("anna"))
	second.want(http.StatusLocked, "LOCK", "", info("bert"))
	second.want(http.StatusOK, "POST", "?ID=anna", state(1))
	second.want(http.StatusOK, "UNLOCK", "", info("anna"))

	paused.pause = func() {}
	first.want(http.StatusServiceUnavailable, "LOCK", "", info("anna"))
	second.want(http.StatusOK, "LOCK", "", info("bert"))
}

// unanswered is a Storage that records the next lock, and reports that it has not.
type unanswered struct {
	tfstate.Storage
	done bool
}

func (s *unanswered) Update(ctx context.Context, resource fencing.Resource, token fencing.Token,
	change func([]byte) ([]byte, error)) error {
	err := s.Storage.Update(ctx, resource, token, change)
	if !s.done {
		s.done = true
		return errors.Join(storagegate.ErrUncertain, err)
	}
	return err
}

// A lock that the storage has recorded is locked, whatever the storage reports: nobody else could unlock it. A request
// that takes the lock itself does its work.
func TestRecordedLockIsLocked(t *testing.T) {
	site := newSite(t, storages["files"](t))
	other := site.server(site.storage(), nil)
	first := site.server(&unanswered{Storage: site.storage()}, nil)
	first.want(http.StatusOK, "LOCK", "", info("anna"))
	other.want(http.StatusOK, "POST", "?ID=anna", state(1))
	first.want(http.StatusOK, "UNLOCK", "", info("anna"))
	site.server(&unanswered{Storage: site.storage()}, nil).want(http.StatusOK, "DELETE", "", "")
	other.want(http.StatusOK, "LOCK", "", info("bert"))
}

// A lease that was lost without a successor does not cost the run its state.
func TestLostLeaseWithoutASuccessor(t *testing.T) {
	site := newSite(t, storages["files"](t))
	s, later := site.server(site.storage(), nil), site.server(site.storage(), nil)
	s.want(http.StatusOK, "LOCK", "", info("anna"))
	require.NoError(t, s.locks.Close(testserver.Context(t)))
	later.want(http.StatusOK, "POST", "?ID=anna", state(1))
	later.want(http.StatusOK, "UNLOCK", "", info("anna"))
	require.Equal(t, state(1), later.want(http.StatusOK, "GET", "", ""))
}

// inMemory returns a handler with locks in memory. It works in a synctest bubble.
func inMemory(t *testing.T, storage tfstate.Storage) *tfstate.Handler {
	t.Helper()
	engine, err := memory.New()
	require.NoError(t, err)
	locks, err := lease.New(engine)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locks.Close(context.Background())) })
	return tfstate.New(locks, storage, tfstate.Config{Prefix: "tfstate/", Log: slog.New(slog.DiscardHandler)})
}

// A request does not wait forever for another gate that was stopped in the middle of a write.
func TestStoppedGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		stopped, err := filegate.New(dir, fencing.Rule{})
		require.NoError(t, err)
		storage, err := tfstate.Files(dir)
		require.NoError(t, err)
		h := inMemory(t, storage)
		err = stopped.Do(t.Context(), "tfstate/prod", 1, func(*filegate.File) error {
			client, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(client, "LOCK", "/prod", strings.NewReader(info("anna"))))
			require.NoError(t, client.Err())
			require.Equal(t, http.StatusServiceUnavailable, w.Code, w.Body)
			require.Regexp(t, `another process holds \S*\.lock, and may be stopped`, w.Body)
			return nil
		})
		require.NoError(t, err)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "LOCK", "/prod", strings.NewReader(info("bert"))))
		require.Equal(t, http.StatusOK, w.Code, w.Body)
	})
}

// slowUnlock is a storage that does not respond to the third update, which ends the lock of a DELETE.
type slowUnlock struct {
	tfstate.Storage
	updates int
}

func (s *slowUnlock) Update(ctx context.Context, resource fencing.Resource, token fencing.Token,
	change func([]byte) ([]byte, error)) error {
	if s.updates++; s.updates < 3 {
		return s.Storage.Update(ctx, resource, token, change)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Hour):
		return errors.New("the request waits for the storage forever")
	}
}

// A request that takes the lock itself does not wait forever until the lock is removed.
func TestUnlockEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files, err := tfstate.Files(t.TempDir())
		require.NoError(t, err)
		h := inMemory(t, &slowUnlock{Storage: files})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "DELETE", "/prod", nil))
		require.Equal(t, http.StatusServiceUnavailable, w.Code, w.Body)
	})
}

func TestUsers(t *testing.T) {
	site := newSite(t, storages["files"](t))
	var log bytes.Buffer
	s := site.serverWithLog(site.storage(), map[string]string{"anna": "secret"}, slog.NewTextHandler(&log, nil))
	as := func(user, password string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth(user, password) }
	}
	require.Contains(t, s.want(http.StatusUnauthorized, "GET", "", ""), "give a user and a password")
	require.Empty(t, log.String())
	refused := s.want(http.StatusUnauthorized, "LOCK", "", info("x"), as("anna", "wrong"))
	require.Contains(t, refused, "the user or the password is wrong")
	require.Equal(t, refused, s.want(http.StatusUnauthorized, "GET", "", "", as("bert", "")))
	require.Regexp(t, `user=anna address=127\.0\.0\.1:\d+\n.*user=bert`, log.String())
	s.want(http.StatusNotFound, "GET", "", "", as("anna", "secret"))
}

func TestInvalidRequests(t *testing.T) {
	site := newSite(t, storages["files"](t))
	s := site.server(site.storage(), nil)
	s.want(http.StatusBadRequest, "LOCK", "", "{")
	s.want(http.StatusBadRequest, "LOCK", "", "{}")
	s.want(http.StatusBadRequest, "PUT", "", "{}")
	s.want(http.StatusOK, "LOCK", "", info("x"))
	for _, content := range []string{"", "hello", "[]", "null", `"x"`, `{"serial":1`, `{"serial":1}{}`} {
		require.Contains(t, s.want(http.StatusBadRequest, "POST", "?ID=x", content), "not a JSON object", content)
	}
	s.want(http.StatusBadRequest, "POST", "?restore=x", "")
	s.want(http.StatusBadRequest, "GET", "@digest", "")
	s.want(http.StatusBadRequest, "GET", "/"+strings.Repeat("x", 500), "")
}
