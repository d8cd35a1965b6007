package gateproxy

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
)

// After the journal could not be written, no request may be sent.
func TestFailedJournalAdmitsNothing(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request was sent")
	}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	require.NoError(t, err)
	p, err := Open(Config{Upstream: target, Journal: filepath.Join(t.TempDir(), "journal.db"),
		Log: slog.New(slog.DiscardHandler), Now: time.Now,
		AnswerTimeout: time.Minute, WaitTimeout: time.Minute, ReadTimeout: time.Minute,
		Resource: func(*http.Request) (fencing.Resource, error) { return "orders/42", nil }})
	require.NoError(t, err)
	require.NoError(t, p.journal.db.Close()) // every write fails now
	for i := range 2 {
		if i == 1 { // the disk works again, but bbolt may show data that is not on it
			again, err := openJournal(p.config.Journal, p.config.Rule)
			require.NoError(t, err)
			defer again.db.Close()
			p.journal.db, p.journal.gate = again.db, again.gate
		}
		r := httptest.NewRequest("PUT", "/", nil)
		r.Header.Set(fencing.Header, "1")
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Contains(t, w.Body.String(), "Journal failed")
	}
	testserver.Receive(t, p.Failed())
}

// A proxy of the environment may answer from its cache, or not reach the service.
func TestServiceIsReachedDirectly(t *testing.T) {
	require.Nil(t, direct().Proxy)
	require.Nil(t, singleUse().Proxy)
}
