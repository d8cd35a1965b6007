package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// statusError is an invalid request for which HTTP has a specific status.
type statusError struct {
	status int
	text   string
}

// Error returns the text.
func (e *statusError) Error() string { return fmt.Sprintf("%v: %s", engine.ErrInvalid, e.text) }

// Unwrap makes errors.Is match engine.ErrInvalid.
func (e *statusError) Unwrap() error { return engine.ErrInvalid }

// statusOf returns the HTTP status of an error.
func statusOf(err error) int {
	var own *statusError
	if errors.As(err, &own) {
		return own.status
	}
	return wire.KindOf(err).HTTP
}

// only returns a handler that refuses all methods but these.
func only(f http.HandlerFunc, methods ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(methods, r.Method) {
			f(w, r)
			return
		}
		w.Header().Set("Allow", strings.Join(methods, ", "))
		fail(w, &statusError{http.StatusMethodNotAllowed, fmt.Sprintf("%s takes %s requests, not %s", r.URL.Path,
			strings.Join(methods, " or "), r.Method)})
	}
}

// noSuchPath refuses a request whose path is unknown.
func noSuchPath(_ http.ResponseWriter, r *http.Request) error {
	return &statusError{http.StatusNotFound,
		fmt.Sprintf("unknown path %s; calls are POST requests such as /v1/acquire, see docs/API.md", r.URL.Path)}
}

// isJSON reports whether a content type is that of JSON.
func isJSON(contentType string) bool {
	if contentType == "application/json" { // what most callers send
		return true
	}
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == "application/json"
}

// readBody returns the body. It requires the content type of JSON, which a page of another site
// cannot make a browser send.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if kind := r.Header.Get("Content-Type"); !isJSON(kind) {
		return nil, &statusError{http.StatusUnsupportedMediaType,
			fmt.Sprintf("the content type must be application/json, not %q", kind)}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(h.Chain.Limits.RequestBytes)))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		w.Header().Set("Connection", "close") // instead of reading the rest
		return nil, fmt.Errorf("%w: the body has more than the %d bytes that limit-request-bytes allows", wire.ErrTooLarge,
			tooLarge.Limit)
	case err != nil:
		return nil, fmt.Errorf("%w: read the body: %w", engine.ErrInvalid, err)
	}
	return body, nil
}

// decode reads a message from a body. An empty body is a message without fields.
func decode(body []byte, into proto.Message) error {
	if len(body) == 0 {
		return nil
	}
	err := protojson.Unmarshal(body, into)
	if err == nil {
		return nil
	}
	first := json.NewDecoder(bytes.NewReader(body))
	var fields map[string]any
	switch syntax := first.Decode(&fields); {
	case syntax != nil && !json.Valid(body):
		return fmt.Errorf("%w: the body is not valid JSON: %w", engine.ErrInvalid, syntax)
	case syntax != nil:
		return fmt.Errorf("%w: the body must be a JSON object, such as {\"resource\": \"a\"}", engine.ErrInvalid)
	case len(bytes.TrimSpace(body[first.InputOffset():])) > 0:
		return fmt.Errorf("%w: the body continues after its JSON object, at byte %d; send one object in a request",
			engine.ErrInvalid, first.InputOffset())
	}
	if wrong := wrongField(into.ProtoReflect().Descriptor(), fields, ""); wrong != "" {
		return fmt.Errorf("%w: %s", engine.ErrInvalid, wrong)
	}
	// The type fits, but the value does not, such as a number that is too large.
	return fmt.Errorf("%w: %s", engine.ErrInvalid, strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0"))
}
