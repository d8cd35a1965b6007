package httpgate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/callgate"
)

// Token reads the token that a request carries, None if it has none.
func Token(r *http.Request) (fencing.Token, error) {
	return fencing.FromValues(r.Header.Values(fencing.Header))
}

// SetToken attaches the token of the holder to a request that it sends.
func SetToken(r *http.Request, token fencing.Token) {
	r.Header.Set(fencing.Header, token.String())
}

// IsRead reports whether a request changes nothing by the rules of HTTP, and
// does not ask to be taken for one of another method.
func IsRead(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return !overrides(r)
	}
	return false
}

// overrides reports whether a service may take the request for one of another
// method.
func overrides(r *http.Request) bool {
	for name, values := range r.Header {
		// Some services take an underscore in a name for a dash.
		switch strings.ToLower(strings.ReplaceAll(name, "_", "-")) {
		case "x-http-method-override", "x-http-method", "x-method-override":
			if strings.Join(values, "") != "" {
				return true
			}
		}
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	return err != nil || query.Has("_method") // what cannot be read may be anything
}

// BufferBody reads up to size bytes of the body ahead. The request then has a
// body that starts with them; one that fits needs nothing more of the client.
func BufferBody(r *http.Request, size int64) error {
	if r.Body == nil || r.Body == http.NoBody || size == 0 {
		return nil
	}
	var ahead bytes.Buffer
	n, err := io.Copy(&ahead, io.LimitReader(r.Body, size+1))
	if err != nil {
		return fmt.Errorf("read the body ahead: %w", err)
	}
	body := r.Body
	if n <= size {
		r.Body = readCloser{&ahead, body}
		return nil
	}
	r.Body = readCloser{io.MultiReader(&ahead, body), body}
	return nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

func badResource(err error) error {
	if errors.Is(err, fencing.ErrInvalidResource) {
		return err
	}
	return fmt.Errorf("name the resource: %w: %w", fencing.ErrInvalidResource, err)
}

func notAdmitted(err error) error {
	return fmt.Errorf("%w: %w", callgate.ErrNotAdmitted, err)
}
