package kubelock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// ErrNoToken means that a write cannot carry a token, so it was not sent. The error says
// why, and what to use instead.
var ErrNoToken = errors.New("the write cannot carry a token")

// jsonPatch is the media type of a list of changes.
const jsonPatch = "application/json-patch+json"

// Transport wraps the connection of a client, as rest.Config.Wrap expects, so that its
// writes are checked by the policy. Set ContentType in the rest.Config to
// application/json. Reads pass unchanged.
//
//   - An object that is created, updated or patched carries the token as an annotation.
//   - Before a delete, a JSON patch, and a write to status or scale, which cannot carry
//     it, the transport patches the annotation of the object. The write is then
//     conditional on the resourceVersion that this patch returned, so that it fails with
//     a conflict if anyone else has written in between.
//   - Any other write fails with ErrNoToken. Without a lease that is valid as far as this
//     process knows, all writes fail, with an error of package lease.
func (l *Lock) Transport(base http.RoundTripper) http.RoundTripper { return &transport{l, base} }

type transport struct {
	lock *Lock
	base http.RoundTripper
}

// refused is the answer of the API server to the patch before a write.
type refused struct{ *http.Response }

// Error names the status.
func (r refused) Error() string { return r.Status }

// RoundTrip sends a request with the token of the term.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	target, ok := parse(r.URL.Path)
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions ||
		ok && !target.stored() {
		return t.base.RoundTrip(r)
	}
	var body []byte
	var err error
	if r.Body != nil {
		body, err = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	if err == nil && !ok {
		err = fmt.Errorf("%w: the path is not that of an object", ErrNoToken)
	}
	r = replace(r, body)
	if err == nil {
		body, err = t.prepare(r, target, body)
	}
	if answer := (refused{}); errors.As(err, &answer) {
		return answer.Response, nil
	} else if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, err)
	}
	return t.base.RoundTrip(replace(r, body))
}

// prepare returns the body to send.
func (t *transport) prepare(r *http.Request, target target, body []byte) ([]byte, error) {
	token, err := t.lock.token()
	if err != nil {
		return nil, err
	}
	media, err := mediaType(r, body)
	if err != nil {
		return nil, err
	}
	enter := func(version string) (string, error) { return t.enter(r, target, token, version) }
	update := r.Method == http.MethodPut || r.Method == http.MethodPatch
	switch {
	case target.name == "" && r.Method == http.MethodPost,
		target.name != "" && target.subresource == "" && update && media != jsonPatch:
		return edit(body, t.lock.annotate(token), "metadata", "annotations")
	case target.name == "" || !update && r.Method != http.MethodDelete:
		return nil, fmt.Errorf("%w: write single objects, or use a client without this transport", ErrNoToken)
	case r.Method == http.MethodDelete && target.subresource == "":
		if len(body) == 0 && r.URL.RawQuery != "" {
			return nil, fmt.Errorf("%w: send the options of a delete in its body", ErrNoToken)
		}
		return edit(body, setVersion(enter), "preconditions")
	case !update || target.subresource != "" && target.subresource != "status" && target.subresource != "scale":
		return nil, fmt.Errorf("%w: %s has no known resourceVersion; use a client without this transport", ErrNoToken,
			target.subresource)
	case media == jsonPatch:
		return addVersion(body, enter)
	}
	return edit(body, setVersion(enter), "metadata")
}

// token returns the token of the term while its lease is valid as far as this process
// knows.
func (l *Lock) token() (fencing.Token, error) {
	term := l.Lease()
	if term == nil {
		return fencing.None, fmt.Errorf("%w: %q is not elected; followers write with a client without this transport",
			lease.ErrNotHeld, l.identity)
	}
	if err := term.Err(); err != nil {
		return fencing.None, l.over(err)
	}
	return term.Token(), nil
}

// annotate sets the annotation with the token.
func (l *Lock) annotate(token fencing.Token) func(object) error {
	return func(annotations object) error { return annotations.set(l.annotation, token.String()) }
}

// enter raises the mark of an object to the token, on condition of its resourceVersion
// unless that is empty, and returns the resulting resourceVersion.
func (t *transport) enter(r *http.Request, target target, token fencing.Token, version string) (string, error) {
	patch, err := edit(nil, t.lock.annotate(token), "metadata", "annotations")
	if err == nil && version != "" {
		patch, err = edit(patch, func(metadata object) error { return metadata.set("resourceVersion", version) }, "metadata")
	}
	if err != nil {
		return "", err
	}
	request := replace(r, patch)
	request.Method, request.URL.Path, request.URL.RawPath, request.URL.RawQuery = http.MethodPatch, target.path, "", ""
	request.Header.Set("Content-Type", "application/merge-patch+json")
	request.Header.Set("Accept", "application/json")
	response, err := t.base.RoundTrip(request)
	if err != nil {
		return "", fmt.Errorf("raise the mark: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return "", refused{response}
	}
	defer response.Body.Close()
	var raised struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.NewDecoder(response.Body).Decode(&raised); err != nil {
		return "", fmt.Errorf("read the object with the raised mark: %w", err)
	}
	if raised.Metadata.ResourceVersion == "" {
		return "", fmt.Errorf("%w: the object has no resourceVersion", ErrNoToken)
	}
	return raised.Metadata.ResourceVersion, nil
}

// mediaType returns the type of a body that can be edited.
func mediaType(r *http.Request, body []byte) (string, error) {
	if len(body) == 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch media {
	case "application/json", jsonPatch, "application/merge-patch+json", "application/strategic-merge-patch+json",
		"application/apply-patch+yaml":
		return media, err
	}
	return "", fmt.Errorf("%w: its body is %q; set ContentType to application/json in the rest.Config", ErrNoToken,
		r.Header.Get("Content-Type"))
}

// replace returns a copy of the request with another body.
func replace(r *http.Request, body []byte) *http.Request {
	r = r.Clone(r.Context())
	r.ContentLength, r.TransferEncoding = int64(len(body)), nil
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, _ = r.GetBody()
	return r
}
