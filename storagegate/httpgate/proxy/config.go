package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/httpgate"
)

// Config says what to put the proxy in front of. What is not set has the
// default that its comment names.
type Config struct {
	// Upstream is the service, such as http://127.0.0.1:8080. It is required.
	Upstream *url.URL
	// Resource names what a request writes to. It is required.
	Resource httpgate.ResourceFunc
	// Journal is the path of the bbolt file with marks and flights. It is
	// required, and must outlive the machine's restarts: without it the proxy
	// forgets which writes it has admitted.
	Journal string
	// Rule is the fencing rule; it may bound the jump.
	Rule fencing.Rule
	// AnswerTimeout is how long a client waits for the service's answer, 30
	// seconds. The proxy itself goes on waiting for it.
	AnswerTimeout time.Duration
	// WaitTimeout is how long a request waits for its turn, 30 seconds.
	WaitTimeout time.Duration
	// ReadTimeout is how long a client may keep a part of a long answer waiting
	// before the proxy drops the client and reads the rest without it, 30
	// seconds. The server that runs the proxy must support write deadlines, as
	// net/http's does.
	ReadTimeout time.Duration
	// Buffer is how many bytes of a body are read before the turn is taken, and
	// of an answer before the turn ends, 1 MiB. What is longer is streamed
	// during the turn: a client that stops in the middle of its upload holds up
	// the resource, and closes it if it never goes on.
	Buffer int64
	// GateReads gates reads like writes.
	GateReads bool
	// UnknownStatus are the answers that do not say whether the request is
	// over: 502, 503, 504, and 520 to 524, with which proxies and content
	// networks in front of a service say that it did not answer. A service that
	// says 503 only before it does anything can have a list without it.
	UnknownStatus []int
	// Log is told of closed resources and failures, slog.Default().
	Log *slog.Logger
	// Now is the clock that flights are stamped with, for operators to read:
	// time.Now. It is required. Nothing is decided by it.
	Now func() time.Time
}

const (
	defaultTimeout = 30 * time.Second
	defaultBuffer  = 1 << 20
)

// DefaultUnknownStatus are the answers that do not say whether a request is over,
// unless Config names others.
func DefaultUnknownStatus() []int {
	return []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, 520, 521, 522, 523, 524}
}

// withDefaults checks c and fills in what is not set.
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
		return c, errors.New("a clock is required; give time.Now")
	case c.AnswerTimeout < 0 || c.WaitTimeout < 0 || c.ReadTimeout < 0:
		return c, fmt.Errorf("the answer timeout %v, the wait timeout %v and the read timeout %v must not be negative",
			c.AnswerTimeout, c.WaitTimeout, c.ReadTimeout)
	case c.Buffer < 0:
		return c, fmt.Errorf("the buffer of %d bytes must not be negative", c.Buffer)
	}
	for _, status := range c.UnknownStatus {
		if status < 200 || status > 599 {
			return c, fmt.Errorf("%d is no status of an answer", status)
		}
	}
	if c.AnswerTimeout == 0 {
		c.AnswerTimeout = defaultTimeout
	}
	if c.WaitTimeout == 0 {
		c.WaitTimeout = defaultTimeout
	}
	if c.ReadTimeout == 0 {
		c.ReadTimeout = defaultTimeout
	}
	if c.Buffer == 0 {
		c.Buffer = defaultBuffer
	}
	if c.UnknownStatus == nil {
		c.UnknownStatus = DefaultUnknownStatus()
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c, nil
}
