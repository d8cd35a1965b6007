package gateproxy

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/leased-project/leased/storagegate/httpgate"
)

// The problem types of the proxy, in addition to the types of httpgate.
const (
	// TypeClosed: the service may still be processing an earlier request for the
	// resource.
	TypeClosed = "urn:leased:problem:closed"
	// TypeUnsent: the request did not reach the service. Nothing was written.
	TypeUnsent = "urn:leased:problem:unsent"
)

var (
	// ErrJournal means that the journal could not be written. The proxy then
	// admits no more requests, because the content of the file is uncertain.
	ErrJournal = errors.New("journal failed")
	// ErrNoFlight means that the resource to reopen is not closed.
	ErrNoFlight = errors.New("no request with an unknown outcome")
	// ErrInFlight means that the proxy still waits for a response.
	ErrInFlight = errors.New("request is still in flight")
)

var (
	errUnsent     = errors.New("the request did not reach the service")
	errUnknown    = errors.New("the outcome of the request is unknown")
	errUnanswered = errors.New("the service did not respond")
	errUpgrade    = errors.New("an upgraded connection cannot be fenced")
	errStopping   = errors.New("the proxy is stopping")
	errLocked     = errors.New("another program has the journal open")
)

// closedError is returned for a resource that is closed because of Flight.
type closedError struct{ Flight Flight }

// Error says why the resource is closed and what an operator can do.
func (e *closedError) Error() string {
	f := e.Flight
	return fmt.Sprintf("%q is closed: the service may still be processing %s %s with token %d, sent %s (%s); "+
		"check the outcome in the service, make sure that the request has ended, "+
		"then reopen the resource (leased gate proxy reopen)",
		string(f.Resource), f.Method, f.Path, f.Token, f.Sent.Format("2006-01-02 15:04:05Z07:00"), f.Reason)
}

// problem converts err for the client.
func problem(err error) *httpgate.Problem {
	var closed *closedError
	switch {
	case errors.As(err, &closed):
		return &httpgate.Problem{Type: TypeClosed, Title: "Resource closed", Status: http.StatusServiceUnavailable,
			Resource: closed.Flight.Resource, Token: &closed.Flight.Token, Detail: closed.Error()}
	case errors.Is(err, errUnsent):
		return &httpgate.Problem{Type: TypeUnsent, Title: "Service not reached", Status: http.StatusBadGateway,
			Detail: "the request did not reach the service and nothing was written; try again"}
	case errors.Is(err, errUnanswered):
		return &httpgate.Problem{Type: "about:blank", Title: "Service did not respond", Status: http.StatusBadGateway}
	case errors.Is(err, errUnknown):
		return &httpgate.Problem{Type: httpgate.TypeUncertain, Title: "Outcome unknown", Status: http.StatusGatewayTimeout,
			Detail: "the service did not respond: the write may or may not have happened, or may still happen; " +
				"the resource is closed until the outcome is known"}
	case errors.Is(err, errUpgrade):
		return &httpgate.Problem{Type: "about:blank", Title: "Upgrade not possible", Status: http.StatusNotImplemented,
			Detail: "the content of an upgraded connection cannot be fenced"}
	case errors.Is(err, ErrJournal):
		return &httpgate.Problem{Type: httpgate.TypeNotAdmitted, Title: "Journal failed",
			Status: http.StatusServiceUnavailable,
			Detail: "the proxy cannot store marks and admits no requests; its operator must check the disk and restart it"}
	}
	return httpgate.NewProblem(err)
}
