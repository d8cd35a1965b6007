package httpgate

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/callgate"
)

// Token returns the token of a request, or None. A handler whose Gate verifies
// signatures calls FromValues of its verifier instead.
func Token(r *http.Request) (fencing.Token, error) {
	return fencing.FromValues(r.Header.Values(fencing.Header))
}

// SetToken is for clients: it adds the holder's token to a request.
func SetToken(r *http.Request, token fencing.Token) {
	r.Header.Set(fencing.Header, token.String())
}

// SetSignedToken is SetToken with the result of lease.Lease.SignedToken, for a
// server that verifies signatures.
func SetSignedToken(r *http.Request, text string) { r.Header.Set(fencing.Header, text) }

// IsRead reports whether a request has a method that changes nothing and does
// not override that method.
func IsRead(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return !overrides(r)
	}
	return false
}

// overrides reports whether a service may treat the request as one with another
// method.
func overrides(r *http.Request) bool {
	for name, values := range r.Header {
		// Some services treat an underscore in a header name like a dash.
		switch strings.ToLower(strings.ReplaceAll(name, "_", "-")) {
		case "x-http-method-override", "x-http-method", "x-method-override":
			if strings.Join(values, "") != "" {
				return true
			}
		}
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	return err != nil || query.Has("_method") // a query that cannot be parsed may contain it
}

// BufferBody reads up to size bytes of the body into memory and replaces the body
// with one that starts with them. The error matches callgate.ErrNotAdmitted.
func BufferBody(r *http.Request, size int64) error {
	if r.Body == nil || r.Body == http.NoBody || size == 0 {
		return nil
	}
	var buffered bytes.Buffer
	n, err := io.Copy(&buffered, io.LimitReader(r.Body, size+1))
	if err != nil {
		return fmt.Errorf("read the request body: %w: %w", callgate.ErrNotAdmitted, err)
	}
	body := r.Body
	if n <= size {
		r.Body = readCloser{&buffered, body}
		return nil
	}
	r.Body = readCloser{io.MultiReader(&buffered, body), body}
	return nil
}

type readCloser struct {
	io.Reader
	io.Closer
}
