package servicetest

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/httpgate"
)

// ServeHTTP writes a value on PUT and returns it on GET.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := fencing.Resource(r.URL.Query().Get("name"))
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.Method == http.MethodPut {
		s.Put(resource, string(body))
		w.WriteHeader(http.StatusNoContent)
		return
	}
	io.WriteString(w, s.Get(resource))
}

// ResourceOf returns the resource of a request to ServeHTTP.
func ResourceOf(r *http.Request) (fencing.Resource, error) {
	return fencing.ParseResource(r.URL.Query().Get("name"))
}

// Gate is the part of a gate that a client cannot reach over HTTP.
type Gate interface {
	Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error)
	Record(ctx context.Context, resource fencing.Resource, token fencing.Token, err error) error
	Counts() storagegate.Counts
	Audit(hook func(context.Context, storagegate.Decision))
}

// HTTPClient is a client of a Store behind an HTTP gate, as a gatetest.Subject.
type HTTPClient struct {
	Gate
	URL string
}

// Request returns a request for the resource, with the token unless it is None.
func (c HTTPClient) Request(
	ctx context.Context, method string, resource fencing.Resource, token fencing.Token, body io.Reader,
) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.URL+"/?name="+url.QueryEscape(string(resource)), body)
	if err == nil && token != fencing.None {
		httpgate.SetToken(r, token)
	}
	return r, err
}

// Send sends a request and returns the body of the response, or the error of a
// refusal.
func (c HTTPClient) Send(
	ctx context.Context, method string, resource fencing.Resource, token fencing.Token, value string,
) (string, error) {
	r, err := c.Request(ctx, method, resource, token, strings.NewReader(value))
	if err != nil {
		return "", err
	}
	return do(r)
}

// WriteSigned is for RequireSigned.
func (c HTTPClient) WriteSigned(text, value string) error {
	r, err := c.Request(context.Background(), http.MethodPut, SignedResource, fencing.None, strings.NewReader(value))
	if err != nil {
		return err
	}
	if text != "" {
		httpgate.SetSignedToken(r, text)
	}
	_, err = do(r)
	return err
}

func do(r *http.Request) (string, error) {
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if err := httpgate.Check(resp); err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// Write writes the value of the resource.
func (c HTTPClient) Write(ctx context.Context, resource fencing.Resource, token fencing.Token, value string) error {
	_, err := c.Send(ctx, http.MethodPut, resource, token, value)
	return err
}

// Read returns the value of the resource.
func (c HTTPClient) Read(ctx context.Context, resource fencing.Resource) (string, error) {
	return c.Send(ctx, http.MethodGet, resource, fencing.None, "")
}

// Enter sends a read with the token. Without a token that would be a plain read,
// so Enter asks the gate itself.
func (c HTTPClient) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if token == fencing.None {
		return storagegate.RefuseTokenless(ctx, c.Gate, resource)
	}
	_, err := c.Send(ctx, http.MethodGet, resource, token, "")
	return err
}
