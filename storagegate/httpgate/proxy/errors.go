package proxy

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/leased-project/leased/storagegate/callgate"
	"github.com/leased-project/leased/storagegate/httpgate"
)

// The types of a problem that only the proxy has.
const (
	// TypeClosed: an earlier request for the resource may still be at work.
	TypeClosed = "urn:leased:problem:closed"
	// TypeUnsent: the request did not reach the service. Nothing was written.
	TypeUnsent = "urn:leased:problem:unsent"
)

var (
	// ErrClosed matches the *ClosedError of every closed resource.
	ErrClosed = errors.New("resource is closed")
	// ErrJournal says that the journal could not be written. The proxy then
	// admits nothing more: what its file holds is no longer certain.
	ErrJournal = errors.New("journal failed")
	// ErrNoFlight says that there is nothing to reopen.
	ErrNoFlight = errors.New("no request with an unknown outcome")
	// ErrInFlight says that a request is still under way.
	ErrInFlight = errors.New("request is still in flight")
)

var (
	errUnsent     = errors.New("the request did not reach the service")
	errUnknown    = errors.New("the outcome of the request is unknown")
	errUnanswered = errors.New("the service did not answer")
	errUpgrade    = errors.New("an upgraded connection cannot be fenced")
	errStopping   = errors.New("the proxy is stopping")
	errOtherFile  = errors.New("another program has the journal open")
)

// ClosedError is the answer for a resource that is closed because of Flight.
type ClosedError struct{ Flight Flight }

// Error says why and what to do.
func (e *ClosedError) Error() string {
	f := e.Flight
	return fmt.Sprintf("%q is closed: %s %s with token %d, sent %s, may still be at work in the service (%s); "+
		"find out what became of it, make sure that it is over, then reopen the resource (leased gate proxy reopen)",
		string(f.Resource), f.Method, f.Path, f.Token, f.Sent.Format("2006-01-02 15:04:05Z07:00"), f.Reason)
}

// Is makes errors.Is match ErrClosed.
func (e *ClosedError) Is(target error) bool { return target == ErrClosed }

// problem tells err to the client.
func problem(err error) *httpgate.Problem {
	var closed *ClosedError
	switch {
	case errors.As(err, &closed):
		return &httpgate.Problem{Type: TypeClosed, Title: "Resource closed", Status: http.StatusServiceUnavailable,
			Resource: closed.Flight.Resource, Token: &closed.Flight.Token, Detail: closed.Error()}
	case errors.Is(err, errUnsent):
		return &httpgate.Problem{Type: TypeUnsent, Title: "Service not reached", Status: http.StatusBadGateway,
			Detail: "the request did not reach the service and nothing was written; try again"}
	case errors.Is(err, errUnanswered):
		return &httpgate.Problem{Type: "about:blank", Title: "Service did not answer", Status: http.StatusBadGateway}
	case errors.Is(err, errUnknown):
		return &httpgate.Problem{Type: httpgate.TypeUncertain, Title: "Outcome unknown", Status: http.StatusGatewayTimeout,
			Detail: "the service did not answer: the write may or may not have happened, or may still happen; the resource is closed until that is known"}
	case errors.Is(err, errUpgrade):
		return &httpgate.Problem{Type: "about:blank", Title: "Upgrade not possible", Status: http.StatusNotImplemented,
			Detail: "what happens inside an upgraded connection cannot be fenced"}
	case errors.Is(err, ErrJournal):
		return &httpgate.Problem{Type: httpgate.TypeNotAdmitted, Title: "Journal failed", Status: http.StatusServiceUnavailable,
			Detail: "the proxy cannot store marks and admits nothing; its operator must look at the disk and restart it"}
	}
	return httpgate.NewProblem(err)
}

func notAdmitted(err error) error { return fmt.Errorf("%w: %w", callgate.ErrNotAdmitted, err) }
