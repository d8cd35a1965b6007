package gateproxy

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/fencing/signature"
	"github.com/leased-project/leased/storagegate/httpgate"
)

// Config configures a Proxy. The command line sets its fields from flags, which
// have the defaults.
type Config struct {
	// Upstream is the URL of the service, such as http://127.0.0.1:8080.
	Upstream *url.URL
	// Resource returns the name of the resource that a request writes to.
	Resource httpgate.ResourceFunc
	// Journal is the path of the bbolt file with marks and flights. It must survive
	// a restart of the machine.
	Journal string
	// Rule is the fencing rule. It can bound the jump.
	Rule fencing.Rule
	// Verifier, if set, makes the proxy accept signed tokens only.
	Verifier *signature.Verifier
	// AnswerTimeout is how long a client waits for the service's response. The
	// proxy itself continues to wait.
	AnswerTimeout time.Duration
	// WaitTimeout is how long a request waits for its resource.
	WaitTimeout time.Duration
	// ReadTimeout limits each write of a long response to a client. After it the proxy
	// drops the client and reads the rest of the response without it. The HTTP server
	// must support write deadlines, as net/http does.
	ReadTimeout time.Duration
	// Buffer is how many bytes of a request body are read before the request
	// waits for its resource, and how many bytes of a response are read before it
	// releases the resource. A longer body is streamed while the request holds the
	// resource: a client that stops in the middle of its upload blocks the
	// resource, and closes it if it never continues.
	Buffer int64
	// GateReads gates reads like writes.
	GateReads bool
	// UnknownStatus lists the status codes that mean an unknown outcome. Remove 503
	// if the service sends it only before it starts to process a request.
	UnknownStatus []int
	// Log receives messages about closed resources and failures.
	Log *slog.Logger
	// Now returns the time that flights are stamped with for operators. No decision
	// depends on it.
	Now func() time.Time
}

// DefaultUnknownStatus returns 502, 503, 504 and 520 to 524. Proxies and content
// delivery networks send them if the service behind them did not respond.
func DefaultUnknownStatus() []int {
	return []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, 520, 521, 522, 523, 524}
}

// Validate checks the fields that come from flags, and names the flags.
func (c Config) Validate() error {
	switch {
	case c.Upstream == nil || *c.Upstream == url.URL{}:
		return errors.New("--upstream is required: the URL of the service, such as http://127.0.0.1:8080")
	case c.Upstream.Host == "" || c.Upstream.Scheme != "http" && c.Upstream.Scheme != "https":
		return fmt.Errorf("--upstream %q is not an http or https URL such as http://127.0.0.1:8080", c.Upstream.Redacted())
	case c.Upstream.RawQuery != "" || c.Upstream.Fragment != "" || c.Upstream.User != nil:
		return fmt.Errorf("--upstream %q must have no user, query or fragment", c.Upstream.Redacted())
	case c.Journal == "":
		return errors.New("--journal is required: a file on persistent storage, " +
			"because a proxy that has lost its marks refuses nothing")
	case c.Resource == nil:
		return errors.New("--resource-path or --resource-header is required: the proxy must know the resource of a request")
	case c.Buffer <= 0:
		return fmt.Errorf("--buffer (%d) must be above 0", c.Buffer)
	case !c.Rule.MaxJump.Valid():
		return fmt.Errorf("--max-jump (%d) must be from 1 to %d, the largest token", uint64(c.Rule.MaxJump), fencing.MaxToken)
	}
	for _, timeout := range []struct {
		flag  string
		value time.Duration
	}{{"answer-timeout", c.AnswerTimeout}, {"wait-timeout", c.WaitTimeout}, {"read-timeout", c.ReadTimeout}} {
		if timeout.value <= 0 {
			return fmt.Errorf("--%s (%v) must be above 0", timeout.flag, timeout.value)
		}
	}
	for _, status := range c.UnknownStatus {
		if status < 200 || status > 599 {
			return fmt.Errorf("--unknown-status (%d) must be from 200 to 599", status)
		}
	}
	return nil
}
