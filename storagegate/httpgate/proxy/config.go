package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/httpgate"
)

// Config configures a Proxy. Fields without "required" have a default.
type Config struct {
	// Upstream is the URL of the service, such as http://127.0.0.1:8080. It is
	// required.
	Upstream *url.URL
	// Resource returns the name of the resource that a request writes to. It is
	// required.
	Resource httpgate.ResourceFunc
	// Journal is the path of the bbolt file with marks and flights. It is
	// required and must survive a restart of the machine.
	Journal string
	// Rule is the fencing rule. It can bound the jump.
	Rule fencing.Rule
	// Verifier, if set, makes the proxy accept signed tokens only.
	Verifier *fencing.Verifier
	// AnswerTimeout is how long a client waits for the service's response. The
	// proxy itself continues to wait. The default is 30 seconds.
	AnswerTimeout time.Duration
	// WaitTimeout is how long a request waits for its resource. The default is 30
	// seconds.
	WaitTimeout time.Duration
	// ReadTimeout limits each write of a long response to a client. After it the
	// proxy drops the client and reads the rest of the response without it. The
	// default is 30 seconds. The HTTP server must support write deadlines, as
	// that of net/http does.
	ReadTimeout time.Duration
	// Buffer is how many bytes of a request body are read before the request
	// waits for its resource, and how many bytes of a response are read before it
	// releases the resource. The default is 1 MiB. A longer body is streamed
	// while the request holds the resource: a client that stops in the middle of
	// its upload blocks the resource, and closes it if it never continues.
	Buffer int64
	// GateReads gates reads like writes.
	GateReads bool
	// UnknownStatus lists the status codes that mean an unknown outcome. The
	// default is DefaultUnknownStatus. Remove 503 if the service sends it only
	// before it starts to process a request.
	UnknownStatus []int
	// Log receives messages about closed resources and failures. The default is
	// slog.Default().
	Log *slog.Logger
	// Now returns the time that flights are stamped with for operators, usually
	// time.Now. It is required. No decision depends on it.
	Now func() time.Time
}

const (
	defaultTimeout = 30 * time.Second
	defaultBuffer  = 1 << 20
)

// DefaultUnknownStatus returns 502, 503, 504 and 520 to 524. Proxies and content
// delivery networks send them if the service behind them did not respond.
func DefaultUnknownStatus() []int {
	return []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, 520, 521, 522, 523, 524}
}

// withDefaults validates c and sets the defaults.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Upstream == nil || c.Upstream.Host == "" || c.Upstream.Scheme != "http" && c.Upstream.Scheme != "https":
		return c, errors.New("the upstream must be an http or https URL with a host, such as http://127.0.0.1:8080")
	case c.Upstream.RawQuery != "" || c.Upstream.Fragment != "" || c.Upstream.User != nil:
		return c, fmt.Errorf("the upstream %q must have no user, query or fragment", c.Upstream.Redacted())
	case c.Resource == nil:
		return c, errors.New("a function that names the resource of a request is required")
	case c.Journal == "":
		return c, errors.New("the path of the journal is required")
	case c.Now == nil:
		return c, errors.New("a clock is required; use time.Now")
	case c.AnswerTimeout < 0 || c.WaitTimeout < 0 || c.ReadTimeout < 0:
		return c, fmt.Errorf("the answer timeout %v, the wait timeout %v and the read timeout %v must not be negative",
			c.AnswerTimeout, c.WaitTimeout, c.ReadTimeout)
	case c.Buffer < 0:
		return c, fmt.Errorf("the buffer of %d bytes must not be negative", c.Buffer)
	}
	for _, status := range c.UnknownStatus {
		if status < 200 || status > 599 {
			return c, fmt.Errorf("the unknown status %d is not between 200 and 599", status)
		}
	}
	c.AnswerTimeout = cmp.Or(c.AnswerTimeout, defaultTimeout)
	c.WaitTimeout = cmp.Or(c.WaitTimeout, defaultTimeout)
	c.ReadTimeout = cmp.Or(c.ReadTimeout, defaultTimeout)
	c.Buffer = cmp.Or(c.Buffer, defaultBuffer)
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.UnknownStatus == nil {
		c.UnknownStatus = DefaultUnknownStatus()
	}
	return c, nil
}
