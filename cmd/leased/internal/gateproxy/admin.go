package gateproxy

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

// Admin returns the handler for operators. It has no authentication, so serve it on a
// separate loopback address.
//
//	GET  /flights                           the requests with an unknown outcome
//	GET  /mark?resource=NAME                the mark of a resource
//	GET  /counts                            the number of decisions
//	POST /reopen?resource=NAME[&abandon=true]
//	POST /reset?resource=NAME&expected=MARK&to=TOKEN
//
// It accepts requests only for loopback addresses and localhost, and refuses
// cross-origin requests, so that a web page in a browser on the machine cannot
// use it.
func (p *Proxy) Admin() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /flights", operation(func(*http.Request) (any, error) { return p.Flights(), nil }))
	mux.Handle("GET /counts", operation(func(*http.Request) (any, error) { return p.Counts(), nil }))
	mux.Handle("GET /mark", operation(func(r *http.Request) (any, error) {
		resource := fencing.Resource(r.FormValue("resource"))
		mark, err := p.Mark(r.Context(), resource)
		return struct {
			Resource fencing.Resource `json:"resource"`
			Mark     fencing.Token    `json:"mark"`
		}{resource, mark}, err
	}))
	mux.Handle("POST /reopen", operation(func(r *http.Request) (any, error) {
		resource, err := fencing.ParseResource(r.FormValue("resource"))
		if err != nil {
			return nil, err
		}
		return nil, p.Reopen(r.Context(), resource, r.FormValue("abandon") == "true")
	}))
	mux.Handle("POST /reset", operation(func(r *http.Request) (any, error) {
		expected, err := fencing.ParseToken(r.FormValue("expected"))
		if err != nil {
			return nil, err
		}
		to, err := fencing.ParseToken(r.FormValue("to"))
		if err != nil {
			return nil, err
		}
		return nil, p.Reset(r.Context(), fencing.Resource(r.FormValue("resource")), expected, to)
	}))
	return localOnly(http.NewCrossOriginProtection().Handler(mux))
}

// operation serves a request of an operator. It returns the answer, nil for none.
type operation func(*http.Request) (any, error)

// ServeHTTP writes the answer, or the error.
func (o operation) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := o(r)
	status := http.StatusOK
	switch {
	case err == nil && answer == nil:
		w.WriteHeader(http.StatusNoContent)
		return
	case err == nil:
	case errors.Is(err, ErrNoFlight):
		status = http.StatusNotFound
	case errors.Is(err, ErrInFlight), errors.Is(err, storagegate.ErrMarkChanged), errors.Is(err, storagegate.ErrNotLower):
		status = http.StatusConflict
	default:
		problem(err).Write(w)
		return
	}
	if err != nil {
		answer = map[string]string{"error": err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "use a loopback address or localhost", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
