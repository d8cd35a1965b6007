package httpgate_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/callgate"
	"github.com/leased-project/leased/storagegate/httpgate"
	"github.com/leased-project/leased/storagegate/memgate"
)

func byPath(t *testing.T) httpgate.ResourceFunc {
	t.Helper()
	resource, err := httpgate.FromPath("/orders/{id}=orders/{id}")
	require.NoError(t, err)
	return resource
}

func newGate(t *testing.T, options ...httpgate.Option) *httpgate.Gate {
	t.Helper()
	gate, err := httpgate.New(callgate.Memory(fencing.Rule{MaxJump: 1000}), byPath(t), options...)
	require.NoError(t, err)
	return gate
}

func send(t *testing.T, h http.Handler, method, path, token, body string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body)).WithContext(t.Context())
	if token != "" {
		r.Header.Set(fencing.Header, token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestHandlerAppliesTheRule(t *testing.T) {
	gate := newGate(t)
	var written []string
	h := gate.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		written = append(written, string(body))
		w.WriteHeader(http.StatusNoContent)
	}))
	steps := []struct {
		name, method, path, token, body string
		status                          int
		problem                         string
	}{
		{"no token, never fenced", "PUT", "/orders/42", "", "free", 204, ""},
		{"first token", "PUT", "/orders/42", "34", "a", 204, ""},
		{"the holder's second write", "POST", "/orders/42", "34", "b", 204, ""},
		{"stale", "PUT", "/orders/42", "33", "x", 412, httpgate.TypeStale},
		{"no token, fenced", "DELETE", "/orders/42", "", "x", 412, httpgate.TypeNoToken},
		{"zero means no token", "PUT", "/orders/42", "0", "x", 412, httpgate.TypeNoToken},
		{"too far", "PUT", "/orders/42", "5000", "x", 412, httpgate.TypeJump},
		{"not a number", "PUT", "/orders/42", "+34", "x", 400, httpgate.TypeInvalidToken},
		{"no resource", "PUT", "/elsewhere", "34", "x", 400, httpgate.TypeInvalidResource},
		{"another resource", "PUT", "/orders/43", "1", "c", 204, ""},
		{"a read without a token", "GET", "/orders/42", "", "d", 204, ""},
		{"a read that enters", "GET", "/orders/42", "40", "e", 204, ""},
		{"a read by a former holder", "GET", "/orders/42", "34", "x", 412, httpgate.TypeStale},
		{"a write after the next holder entered", "PUT", "/orders/42", "39", "x", 412, httpgate.TypeStale},
	}
	for _, step := range steps {
		resp := send(t, h, step.method, step.path, step.token, step.body)
		require.Equal(t, step.status, resp.StatusCode, step.name)
		if step.problem == "" {
			require.NoError(t, httpgate.Check(resp), step.name)
			continue
		}
		require.Equal(t, httpgate.ProblemType, resp.Header.Get("Content-Type"), step.name)
		var p httpgate.Problem
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&p), step.name)
		require.Equal(t, step.problem, p.Type, step.name)
	}
	require.Equal(t, []string{"free", "a", "b", "c", "d", "e"}, written, "a refused request must not reach the handler")
	require.Equal(t, storagegate.Counts{Admitted: 5, Stale: 3, Tokenless: 2, JumpExceeded: 1}, gate.Counts())
}

func TestProblemCarriesTheMark(t *testing.T) {
	h := newGate(t).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	send(t, h, "PUT", "/orders/42", "34", "")
	resp := send(t, h, "PUT", "/orders/42", "33", "")
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"urn:leased:problem:stale-token","title":"Stale fencing token","status":412,
		"resource":"orders/42","token":33,"mark":34,
		"detail":"stale fencing token 33 for \"orders/42\": 34 has been admitted; the lease is lost, stop writing"}`,
		string(body))

	var stale *fencing.StaleError
	require.ErrorAs(t, httpgate.Check(send(t, h, "PUT", "/orders/42", "33", "")), &stale)
	require.Equal(t, fencing.StaleError{Resource: "orders/42", Token: 33, Mark: 34}, *stale)
}

func TestCheckReturnsTheError(t *testing.T) {
	for _, err := range []error{
		&fencing.StaleError{Resource: "r", Token: 1, Mark: 2},
		&fencing.StaleError{Resource: "r", Token: fencing.None, Mark: 2},
		&fencing.JumpError{Resource: "r", Token: 9, Mark: 2, MaxJump: 3},
	} {
		w := httptest.NewRecorder()
		httpgate.WriteError(w, err)
		require.Equal(t, err, httpgate.Check(w.Result()))
	}
	for _, err := range []error{fencing.ErrInvalidToken, fencing.ErrInvalidResource, callgate.ErrNotAdmitted,
		storagegate.ErrUncertain} {
		w := httptest.NewRecorder()
		httpgate.WriteError(w, err)
		require.ErrorIs(t, httpgate.Check(w.Result()), err)
	}
	w := httptest.NewRecorder()
	httpgate.WriteError(w, errors.New("password is hunter2"))
	require.Equal(t, 500, w.Code)
	require.NotContains(t, w.Body.String(), "hunter2", "the text of an unknown error must not be sent to the client")
}

// A request with a newer token must wait for the handler of an older one.
func TestNewerRequestWaitsForTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var order []string
		var mu sync.Mutex // reads do not hold the resource
		gate := newGate(t, httpgate.Wait(time.Minute))
		h := gate.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Header.Get(fencing.Header) == "1" {
				<-release
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, r.Method+r.Header.Get(fencing.Header))
		}))
		go send(t, h, "PUT", "/orders/42", "1", "")
		synctest.Wait()
		// The read of the next holder enters, and must see the older write.
		read, write := make(chan int, 1), make(chan int, 1)
		go func() { read <- send(t, h, "GET", "/orders/42", "2", "").StatusCode }()
		synctest.Wait()
		go func() { write <- send(t, h, "PUT", "/orders/42", "3", "").StatusCode }()
		synctest.Wait()
		require.Empty(t, read)
		require.Empty(t, write)
		close(release)
		require.Equal(t, 200, <-read)
		require.Equal(t, 200, <-write)
		require.Equal(t, "PUT1", order[0])
	})
}

func TestWaitEndsWith503(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		h := newGate(t, httpgate.Wait(time.Minute)).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			<-release
		}))
		go send(t, h, "PUT", "/orders/42", "1", "")
		synctest.Wait()
		resp := send(t, h, "PUT", "/orders/42", "2", "")
		require.Equal(t, 503, resp.StatusCode)
		require.ErrorIs(t, httpgate.Check(resp), callgate.ErrNotAdmitted)
		close(release)
	})
}

// A holder that is paused in the middle of its upload must not block the
// resource, and is refused when it resumes.
func TestIncompleteBodyDoesNotBlockTheResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written []string
		h := newGate(t).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			written = append(written, string(body))
		}))
		upload, client := io.Pipe()
		slow := make(chan int, 1)
		go func() {
			r := httptest.NewRequest("PUT", "/orders/42", upload)
			r.Header.Set(fencing.Header, "1")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			slow <- w.Code
		}()
		_, err := client.Write([]byte("half of"))
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 200, send(t, h, "PUT", "/orders/42", "2", "new").StatusCode)
		_, err = client.Write([]byte(" the old"))
		require.NoError(t, err)
		client.Close()
		require.Equal(t, 412, <-slow)
		require.Equal(t, []string{"new"}, written)
	})
}

func TestLongBodyIsComplete(t *testing.T) {
	for _, size := range []int64{0, 1, 9, 10, 11, 1 << 10} {
		var got string
		h := newGate(t, httpgate.Buffer(size)).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			got = string(body)
		}))
		send(t, h, "PUT", "/orders/42", "1", "0123456789")
		require.Equal(t, "0123456789", got, "buffer of %d", size)
	}
}

func TestGateReads(t *testing.T) {
	h := newGate(t, httpgate.GateReads()).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	send(t, h, "GET", "/orders/42", "2", "")
	require.Equal(t, 412, send(t, h, "GET", "/orders/42", "", "").StatusCode)
}

func TestUngated(t *testing.T) {
	gate, err := httpgate.New(callgate.Memory(fencing.Rule{}), func(*http.Request) (fencing.Resource, error) {
		return "", callgate.ErrUngated
	})
	require.NoError(t, err)
	h := gate.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	require.Equal(t, 200, send(t, h, "PUT", "/", "1", "").StatusCode)
	require.Zero(t, gate.Counts())
}

func TestOptionsAreChecked(t *testing.T) {
	for _, option := range []httpgate.Option{httpgate.Wait(0), httpgate.Buffer(-1)} {
		_, err := httpgate.New(callgate.Memory(fencing.Rule{}), httpgate.FromHeader("X"), option)
		require.Error(t, err)
	}
	_, err := httpgate.New(nil, nil)
	require.Error(t, err)
}

// A handler that supports such a header or parameter would write on a GET.
func TestMethodOverridesAreWrites(t *testing.T) {
	gate, written := newGate(t), false
	h := gate.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		written = r.Method == http.MethodGet
	}))
	require.Equal(t, http.StatusOK, send(t, h, "PUT", "/orders/42", "34", "").StatusCode)
	for _, header := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override",
		"X_HTTP_Method_Override"} {
		r := httptest.NewRequest("GET", "/orders/42", nil)
		r.Header[header] = []string{"PUT"}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusPreconditionFailed, w.Code, header)
	}
	require.Equal(t, http.StatusPreconditionFailed, send(t, h, "GET", "/orders/42?_method=PUT", "", "").StatusCode)
	require.False(t, written)
	require.Equal(t, http.StatusOK, send(t, h, "GET", "/orders/42?x=1", "", "").StatusCode)
}

// A handler that enters a storage gate before it reads gets ErrNoToken for a resource that
// was never fenced. It is an error of the client.
func TestHandlerEntersWithoutAToken(t *testing.T) {
	storage := memgate.New[string](fencing.Rule{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := httpgate.Token(r)
		require.NoError(t, err)
		httpgate.WriteError(w, storage.Enter(r.Context(), "orders/42", token))
	})
	response := send(t, h, "PUT", "/orders/42", "", "")
	require.Equal(t, http.StatusPreconditionFailed, response.StatusCode)
	require.ErrorIs(t, httpgate.Check(response), fencing.ErrNoToken)
}
