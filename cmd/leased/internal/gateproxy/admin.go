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
	mux.HandleFunc("GET /flights", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, p.Flights())
	})
	mux.HandleFunc("GET /counts", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, p.Counts())
	})
	mux.HandleFunc("GET /mark", p.adminMark)
	mux.HandleFunc("POST /reopen", p.adminReopen)
	mux.HandleFunc("POST /reset", p.adminReset)
	return localOnly(http.NewCrossOriginProtection().Handler(mux))
}

func (p *Proxy) adminMark(w http.ResponseWriter, r *http.Request) {
	resource := fencing.Resource(r.FormValue("resource"))
	mark, err := p.Mark(r.Context(), resource)
	if err != nil {
		problem(err).Write(w)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Resource fencing.Resource `json:"resource"`
		Mark     fencing.Token    `json:"mark"`
	}{resource, mark})
}

func (p *Proxy) adminReopen(w http.ResponseWriter, r *http.Request) {
	resource, err := fencing.ParseResource(r.FormValue("resource"))
	if err != nil {
		problem(err).Write(w)
		return
	}
	err = p.Reopen(r.Context(), resource, r.FormValue("abandon") == "true")
	status := http.StatusInternalServerError
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
		return
	case errors.Is(err, ErrNoFlight):
		status = http.StatusNotFound
	case errors.Is(err, ErrInFlight):
		status = http.StatusConflict
	}
	writeJSON(w, status, map[string]string{"error": err.Error()})
}

func (p *Proxy) adminReset(w http.ResponseWriter, r *http.Request) {
	expected, err := fencing.ParseToken(r.FormValue("expected"))
	if err != nil {
		problem(err).Write(w)
		return
	}
	to, err := fencing.ParseToken(r.FormValue("to"))
	if err != nil {
		problem(err).Write(w)
		return
	}
	err = p.Reset(r.Context(), fencing.Resource(r.FormValue("resource")), expected, to)
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, storagegate.ErrMarkChanged), errors.Is(err, storagegate.ErrNotLower):
		writeJSON(w, http.StatusConflict, map[string]string{"error": err.Error()})
	default:
		problem(err).Write(w)
	}
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
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
