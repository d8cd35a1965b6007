package httpapi

import (
	"context"
	"io"
	"net/http"
	"strings"
)

// Paths of the probes.
const (
	LivePath  = "/livez"
	ReadyPath = "/readyz"
)

// Probes reports whether this member can serve callers. The reason says why not, or
// what is limited. It serves the probes as a line of text. LivePath returns 200 whenever the
// process can answer at all: a supervisor restarts a member that does not, and a
// member without a leader must not be restarted. ReadyPath returns 200 if the member
// can serve, otherwise 503 and the reason.
type Probes func(ctx context.Context) (ready bool, reason string)

var _ http.Handler = Probes(nil)

// ServeHTTP answers a probe. The body of a request is ignored.
func (p Probes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	status, text := http.StatusOK, "ok"
	switch {
	case r.URL.Path != LivePath && r.URL.Path != ReadyPath:
		status, text = http.StatusNotFound, "not found; the paths are "+LivePath+", "+ReadyPath+" and /metrics"
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		status, text = http.StatusMethodNotAllowed, "use GET"
	case r.URL.Path == ReadyPath:
		ready, reason := p(r.Context())
		if !ready {
			status, text = http.StatusServiceUnavailable, "not ready"
		}
		if reason != "" {
			text += ": " + strings.ReplaceAll(reason, "\n", "; ")
		}
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // nothing can be done if the caller is gone
}
