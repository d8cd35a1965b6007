package httpgate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/callgate"
)

// ProblemType is the media type of a Problem.
const ProblemType = "application/problem+json"

// The types of a Problem.
const (
	TypeStale           = "urn:leased:problem:stale-token"
	TypeNoToken         = "urn:leased:problem:no-token"
	TypeJump            = "urn:leased:problem:token-jump"
	TypeInvalidToken    = "urn:leased:problem:invalid-token"
	TypeInvalidResource = "urn:leased:problem:invalid-resource"
	TypeNotAdmitted     = "urn:leased:problem:not-admitted"
	TypeUncertain       = "urn:leased:problem:uncertain"
)

// Problem is the body of a refusal, as defined by RFC 9457. Resource, Token and
// Mark are set if a token was refused.
type Problem struct {
	Type     string           `json:"type"`
	Title    string           `json:"title"`
	Status   int              `json:"status"`
	Detail   string           `json:"detail,omitempty"`
	Resource fencing.Resource `json:"resource,omitempty"`
	Token    *fencing.Token   `json:"token,omitempty"`
	Mark     *fencing.Token   `json:"mark,omitempty"`
	MaxJump  *fencing.Token   `json:"maxJump,omitempty"`
}

// NewProblem converts an error of a gate for an HTTP client. A refused token is
// 412 Precondition Failed, invalid input 400, a call that did not run 503, and
// an unknown outcome 500, because the write may have happened.
func NewProblem(err error) *Problem {
	p := &Problem{Status: http.StatusInternalServerError, Type: "about:blank", Title: "Internal Server Error"}
	var stale *fencing.StaleError
	var jump *fencing.JumpError
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &stale):
		p.Status, p.Type, p.Title = http.StatusPreconditionFailed, TypeStale, "Stale fencing token"
		if stale.Token == fencing.None {
			p.Type, p.Title = TypeNoToken, "No fencing token"
		}
		p.Resource, p.Token, p.Mark, p.Detail = stale.Resource, &stale.Token, &stale.Mark, stale.Error()
	case errors.As(err, &jump):
		p.Status, p.Type, p.Title = http.StatusPreconditionFailed, TypeJump, "Fencing token jumps too far"
		p.Resource, p.Token, p.Mark, p.MaxJump, p.Detail = jump.Resource, &jump.Token, &jump.Mark, &jump.MaxJump, jump.Error()
	case errors.Is(err, fencing.ErrNoToken): // of a resource that was never fenced
		p.Status, p.Type, p.Title, p.Detail = http.StatusPreconditionFailed, TypeNoToken, "No fencing token", err.Error()
	case errors.Is(err, fencing.ErrInvalidToken):
		p.Status, p.Type, p.Title, p.Detail = http.StatusBadRequest, TypeInvalidToken, "Invalid fencing token", err.Error()
	case errors.Is(err, fencing.ErrInvalidResource):
		p.Status, p.Type, p.Title, p.Detail = http.StatusBadRequest, TypeInvalidResource, "Invalid resource", err.Error()
	case errors.As(err, &tooLong):
		p.Status, p.Title, p.Detail = http.StatusRequestEntityTooLarge, "Body too long", tooLong.Error()
	case errors.Is(err, callgate.ErrNotAdmitted):
		p.Status, p.Type, p.Title, p.Detail = http.StatusServiceUnavailable, TypeNotAdmitted, "Not admitted",
			"the request did not run and nothing was written; try again"
	case errors.Is(err, storagegate.ErrUncertain):
		p.Type, p.Title, p.Detail = TypeUncertain, "Outcome unknown",
			"the write may or may not have happened; read the data again under the same token"
	}
	return p
}

// Err is the inverse of NewProblem: it returns the error that the problem was
// made from, such as a *fencing.StaleError.
func (p *Problem) Err() error {
	switch {
	case (p.Type == TypeStale || p.Type == TypeNoToken) && p.Token != nil && p.Mark != nil:
		return &fencing.StaleError{Resource: p.Resource, Token: *p.Token, Mark: *p.Mark}
	case p.Type == TypeJump && p.Token != nil && p.Mark != nil && p.MaxJump != nil:
		return &fencing.JumpError{Resource: p.Resource, Token: *p.Token, Mark: *p.Mark, MaxJump: *p.MaxJump}
	case p.Type == TypeNoToken:
		return fmt.Errorf("%w: the server says: %s", fencing.ErrNoToken, p.Detail)
	case p.Type == TypeInvalidToken:
		return fmt.Errorf("%w: the server says: %s", fencing.ErrInvalidToken, p.Detail)
	case p.Type == TypeInvalidResource:
		return fmt.Errorf("%w: the server says: %s", fencing.ErrInvalidResource, p.Detail)
	case p.Type == TypeNotAdmitted:
		return fmt.Errorf("%w: the server says: %s", callgate.ErrNotAdmitted, p.Detail)
	case p.Type == TypeUncertain:
		return fmt.Errorf("%w: the server says: %s", storagegate.ErrUncertain, p.Detail)
	}
	return fmt.Errorf("the server responded %d %s: %s", p.Status, p.Title, p.Detail)
}

// Write sends the problem as the response.
func (p *Problem) Write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil { // only for a mark above MaxToken, which no gate stores
		http.Error(w, p.Title, p.Status)
		return
	}
	w.Header().Set("Content-Type", ProblemType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	w.Write(body)
}

// WriteError sends the Problem for err as the response. A handler that calls a
// storage gate itself uses it to report the error.
func WriteError(w http.ResponseWriter, err error) { NewProblem(err).Write(w) }

// Check is for clients. If resp is a Problem, it reads the body and returns the
// problem's error. Otherwise it returns nil and does not read the body.
func Check(resp *http.Response) error {
	const largest = 64 << 10
	if resp.Header.Get("Content-Type") != ProblemType {
		return nil
	}
	var p Problem
	if err := json.NewDecoder(io.LimitReader(resp.Body, largest)).Decode(&p); err != nil {
		return fmt.Errorf("read the problem in a response with status %d: %w", resp.StatusCode, err)
	}
	return p.Err()
}
