package kubelock_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/integrations/kubelock"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
)

// wire records requests as "METHOD path type body", and answers with an object.
type wire struct{ sent []string }

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	body := []byte("")
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	if int64(len(body)) != r.ContentLength && r.Body != nil {
		return nil, fmt.Errorf("the length is %d, not %d", len(body), r.ContentLength)
	}
	w.sent = append(w.sent, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(), body)))
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(
		`{"metadata":{"name":"x","resourceVersion":"7"}}`))}, nil
}

func request(t *testing.T, method, path, media, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://kubernetes"+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", media)
	return r
}

const (
	maps  = "/api/v1/namespaces/shop/configmaps"
	mark  = `{"metadata":{"annotations":{"fencing-token/shop":"TOKEN"}}}`
	enter = "PATCH " + maps + "/x " + mark

	asJSON      = "application/json"
	asMerge     = "application/merge-patch+json"
	asStrategic = "application/strategic-merge-patch+json"
	asApply     = "application/apply-patch+yaml"
	asJSONPatch = "application/json-patch+json"
)

// What is sent for a request. The token of the term stands as TOKEN.
func TestEveryWriteCarriesTheToken(t *testing.T) {
	t.Parallel()
	lock := elected(t, dial(t), "shop", "leader")
	const status = "/apis/example.com/v1/namespaces/shop/widgets/x/status"
	for _, c := range []struct {
		name, method, path, media, body string
		want                            []string
	}{
		{"create", "POST", maps, asJSON, `{"kind":"ConfigMap","data":{"n":"1"}}`,
			[]string{"POST " + maps + ` {"data":{"n":"1"},"kind":"ConfigMap",` + mark[1:]}},
		{"update", "PUT", maps + "/x", "application/json; charset=utf-8",
			`{"metadata":{"name":"x","annotations":{"a":"b","fencing-token/shop":"1"}}}`,
			[]string{"PUT " + maps + `/x {"metadata":{"annotations":{"a":"b","fencing-token/shop":"TOKEN"},"name":"x"}}`}},
		{"large numbers stay", "PUT", maps + "/x", asJSON, `{"n":9007199254740993}`,
			[]string{"PUT " + maps + `/x {` + mark[1:len(mark)-1] + `,"n":9007199254740993}`}},
		{"merge patch", "PATCH", maps + "/x?fieldManager=m", asMerge, `{"data":null}`,
			[]string{"PATCH " + maps + `/x?fieldManager=m {"data":null,` + mark[1:]}},
		{"strategic merge patch", "PATCH", maps + "/x", asStrategic, `{}`, []string{enter}},
		{"apply", "PATCH", maps + "/x?force=true", asApply, `{}`, []string{"PATCH " + maps + "/x?force=true " + mark}},
		{"JSON patch", "PATCH", maps + "/x", asJSONPatch, `[{"op":"remove","path":"/data"}]`,
			[]string{enter, "PATCH " + maps +
				`/x [{"op":"remove","path":"/data"},{"op":"replace","path":"/metadata/resourceVersion","value":"7"}]`}},
		{"delete", "DELETE", maps + "/x", asJSON, `{"gracePeriodSeconds":1}`,
			[]string{enter, "DELETE " + maps + `/x {"gracePeriodSeconds":1,"preconditions":{"resourceVersion":"7"}}`}},
		{"delete without options", "DELETE", maps + "/x", "", "",
			[]string{enter, "DELETE " + maps + `/x {"preconditions":{"resourceVersion":"7"}}`}},
		{"conditional delete", "DELETE", maps + "/x", asJSON, `{"preconditions":{"resourceVersion":"5","uid":"u"}}`,
			[]string{"PATCH " + maps + `/x {"metadata":{"annotations":{"fencing-token/shop":"TOKEN"},"resourceVersion":"5"}}`,
				"DELETE " + maps + `/x {"preconditions":{"resourceVersion":"7","uid":"u"}}`}},
		{"status", "PUT", status, asJSON, `{"metadata":{"resourceVersion":"5"},"status":{}}`,
			[]string{"PATCH " + strings.TrimSuffix(status, "/status") +
				` {"metadata":{"annotations":{"fencing-token/shop":"TOKEN"},"resourceVersion":"5"}}`,
				"PUT " + status + ` {"metadata":{"resourceVersion":"7"},"status":{}}`}},
		{"scale", "PATCH", "/prefix/apis/apps/v1/namespaces/shop/deployments/x/scale", asMerge, `{"spec":{"replicas":3}}`,
			[]string{"PATCH /prefix/apis/apps/v1/namespaces/shop/deployments/x " + mark,
				`PATCH /prefix/apis/apps/v1/namespaces/shop/deployments/x/scale ` +
					`{"metadata":{"resourceVersion":"7"},"spec":{"replicas":3}}`}},
		{"status of a namespace", "PUT", "/api/v1/namespaces/shop/status", asJSON, `{}`,
			[]string{"PATCH /api/v1/namespaces/shop " + mark,
				`PUT /api/v1/namespaces/shop/status {"metadata":{"resourceVersion":"7"}}`}},
		{"namespace", "PATCH", "/api/v1/namespaces/shop", asMerge, `{}`, []string{"PATCH /api/v1/namespaces/shop " + mark}},
		{"read", "GET", maps + "/x", "", "", []string{"GET " + maps + "/x"}},
		{"review", "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", asJSON, `{"spec":{}}`,
			[]string{`POST /apis/authorization.k8s.io/v1/subjectaccessreviews {"spec":{}}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &wire{}
			response, err := lock.Transport(w).RoundTrip(request(t, c.method, c.path, c.media, c.body))
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			for i := range c.want {
				c.want[i] = strings.ReplaceAll(c.want[i], "TOKEN", lock.Lease().Token().String())
			}
			require.Equal(t, c.want, w.sent)
		})
	}
}

// A write that cannot carry the token is not sent, and the error says why.
func TestNoWriteLosesTheTokenSilently(t *testing.T) {
	t.Parallel()
	lock := elected(t, dial(t), "silence", "leader")
	for _, c := range []struct{ name, method, path, media, body, want string }{
		{"protobuf", "PUT", maps + "/x", "application/vnd.kubernetes.protobuf", "k8s", "set ContentType to application/json"},
		{"CBOR", "PATCH", maps + "/x", "application/apply-patch+cbor", "k8s", "set ContentType to application/json"},
		{"YAML", "PATCH", maps + "/x", asApply, "data: {}", "send JSON"},
		{"list", "POST", maps, asJSON, "[]", "not a JSON object"},
		{"annotations are removed", "PATCH", maps + "/x", asMerge, `{"metadata":{"annotations":null}}`,
			"name those to remove"},
		{"metadata is replaced", "PATCH", maps + "/x", asStrategic, `{"metadata":{"$patch":"delete"}}`, "use a merge patch"},
		{"delete of a collection", "DELETE", maps, asJSON, "{}", "write single objects"},
		{"options in the query", "DELETE", maps + "/x?gracePeriodSeconds=0", asJSON, "", "in its body"},
		{"eviction", "POST", "/api/v1/namespaces/shop/pods/x/eviction", asJSON, "{}", "use a client without"},
		{"proxy", "PUT", "/api/v1/namespaces/shop/pods/x/proxy/status", asJSON, "{}", "use a client without"},
		{"approval", "PUT", "/apis/certificates.k8s.io/v1/certificatesigningrequests/x/approval", asJSON, "{}", "approval"},
		{"another path", "POST", "/healthz", asJSON, "{}", "not that of an object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &wire{}
			_, err := lock.Transport(w).RoundTrip(request(t, c.method, c.path, c.media, c.body))
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, c.method+" /")
			require.ErrorIs(t, err, kubelock.ErrNoToken)
			require.Empty(t, w.sent)
		})
	}
}

// Without a lease nothing is written.
func TestNoWriteWithoutALease(t *testing.T) {
	t.Parallel()
	locks, w := dial(t), &wire{}
	create := request(t, "POST", maps, asJSON, "{}")
	_, err := candidate(t, locks, "followers", "follower").Transport(w).RoundTrip(create)
	require.ErrorIs(t, err, lease.ErrNotHeld)
	lock := elected(t, locks, "followers", "leader")
	breakLease(t, locks, lock)
	testserver.Eventually(t, "the loss is noticed", func() bool {
		return lock.Update(testserver.Context(t), record("leader")) != nil && lock.Lease().Err() != nil
	})
	_, err = lock.Transport(w).RoundTrip(create)
	require.ErrorIs(t, err, lease.ErrLost)
	require.Empty(t, w.sent)
}
