package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

const (
	// summaryInterval is the time between two summaries, and between two events of the
	// views that poll.
	summaryInterval = 2 * time.Second
	// checkInterval is the time between two checks of who leads.
	checkInterval = 250 * time.Millisecond
	// keepAwake is the time between two comments, which keep proxies from ending a quiet
	// stream.
	keepAwake = 10 * time.Second
	// retryInterval is the time after which a view that failed starts again.
	retryInterval = time.Second
)

// view is a view of /ui/live.
type view struct {
	// run sends the current event of the view, or its events until ctx ends.
	run func(h *Handler, ctx context.Context, s *stream, q query) error
	// calls are the calls of the API that run makes.
	calls func(q query) []call
}

// call is a call of the API.
type call struct {
	method  string
	request message
}

var views = map[string]view{
	"locks": {(*Handler).locks, func(q query) []call {
		return []call{{pb.LeaseService_Overview_FullMethodName, q.overview}}
	}},
	"lock": {(*Handler).lock, func(q query) []call {
		return []call{{pb.LeaseService_Inspect_FullMethodName, &pb.InspectRequest{Resource: q.resource}},
			{pb.LeaseService_History_FullMethodName, &pb.HistoryRequest{Resource: q.resource}}}
	}},
	"cluster": {(*Handler).cluster, func(query) []call {
		return []call{{pb.ClusterService_ClusterStatus_FullMethodName, &pb.ClusterStatusRequest{}},
			{pb.RedisService_GetFleet_FullMethodName, &pb.GetFleetRequest{}}}
	}},
	"policies": {(*Handler).policies, func(query) []call {
		return []call{{pb.PolicyService_ListPolicies_FullMethodName, &pb.ListPoliciesRequest{}}}
	}},
}

// query has the parameters of a stream.
type query struct {
	resource string
	overview *pb.OverviewRequest
	local    bool // answer from the state of this member
}

// Live streams the events of one view until the caller ends the request, or until this
// member becomes the leader or stops being it. The caller of the API then connects again
// and reaches the leader. An error means that nothing was written.
func (h *Handler) Live(w http.ResponseWriter, r *http.Request) error {
	view, q, err := parse(r.URL.Query())
	if err != nil {
		return err
	}
	for _, c := range view.calls(q) { // once: a stream ends when the rights of its user change
		if err := h.chain.Check(r.Context(), c.method, c.request); err != nil {
			return err
		}
	}
	q.local = !h.router.Node.Leads()
	q.overview.Local = q.local
	ctx, cancel := context.WithCancel(r.Context())
	s := &stream{w: w, encode: h.encode, failed: cancel}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("X-Accel-Buffering", "no") // of nginx
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	s.sendJSON("summary", h.summary(ctx, q.local))
	work.Go(func() { h.run(ctx, s, view, q) })
	h.accompany(ctx, s, q.local)
	if cause := auth.CallError(r.Context(), r.Context().Err()); cause != nil && !errors.Is(cause, context.Canceled) {
		s.fail(wire.FromError(cause)) // the user was removed
	}
	return nil
}

// parse reads the parameters of a stream.
func parse(values url.Values) (v view, q query, err error) {
	number := func(name string) int32 {
		text := values.Get(name)
		if text == "" {
			return 0
		}
		n, wrong := strconv.ParseInt(text, 10, 32)
		if wrong != nil {
			err = fmt.Errorf("%w: %s (%s) must be a number", engine.ErrInvalid, name, text)
		}
		return int32(n)
	}
	v, known := views[values.Get("view")]
	if !known {
		return v, q, fmt.Errorf("%w: view (%s) must be locks, lock, cluster or policies", engine.ErrInvalid,
			values.Get("view"))
	}
	q.resource = values.Get("resource")
	q.overview = &pb.OverviewRequest{Search: values.Get("search"), Mode: values.Get("mode"), Sort: values.Get("sort"),
		Offset: number("offset"), Limit: number("limit")}
	return v, q, err
}

// run runs a view again and again until ctx ends. A view that fails sends its error, and runs
// again unless the same request would be refused again.
func (h *Handler) run(ctx context.Context, s *stream, v view, q query) {
	for ctx.Err() == nil {
		pause := summaryInterval
		if err := v.run(h, ctx, s, q); err != nil && ctx.Err() == nil {
			if !routing.IsNotLeader(err) { // otherwise the stream ends in a moment
				s.fail(wire.FromError(err))
			}
			if errors.Is(err, engine.ErrForbidden) || errors.Is(err, engine.ErrInvalid) {
				return
			}
			pause = retryInterval
		}
		_ = engine.Sleep(ctx, pause)
	}
}

// accompany sends summaries and keep-alive comments until ctx ends or another member should
// serve the stream: this one has lost its leadership, or served its own state because there
// was no leader, and now there is one.
func (h *Handler) accompany(ctx context.Context, s *stream, local bool) {
	summarized := h.router.Clock.Now()
	commented := summarized
	for engine.Sleep(ctx, checkInterval) == nil {
		if h.router.Node.Leads() == local || local && h.router.LeaderAddress() != "" {
			return
		}
		now := h.router.Clock.Now()
		if now.Since(summarized) >= summaryInterval {
			summarized = now
			s.sendJSON("summary", h.summary(ctx, local))
		}
		if now.Since(commented) >= keepAwake {
			commented = now
			s.comment()
		}
	}
}

// summary is the state of the member that serves a stream.
type summary struct {
	Member string `json:"member"`
	Leader string `json:"leader"` // its id, empty if there is none
	State  string `json:"state"`
	Health string `json:"health"`
	Reason string `json:"reason,omitempty"`
	Stale  bool   `json:"stale"`
	Time   string `json:"time"`
}

func (h *Handler) summary(ctx context.Context, local bool) summary {
	leader, _ := h.router.Node.Leader()
	s := summary{Member: h.router.Node.ID(), Leader: leader, State: h.router.Node.Status().State, Stale: local,
		Time: h.router.Clock.Now().Time().UTC().Format(time.RFC3339Nano)}
	health, err := h.admin.Health(ctx, &pb.HealthRequest{})
	if err != nil {
		s.Health, s.Reason = "not-serving", err.Error()
	} else {
		s.Health, s.Reason = health.Status, health.Reason
	}
	return s
}

// stream writes server-sent events. Its methods may be called concurrently.
type stream struct {
	encode func(m message) []byte
	failed func() // ends the stream

	mu      sync.Mutex
	w       http.ResponseWriter
	failure []byte // the last failure event, until another event of the view
}

// send writes an event. data is JSON without line feeds, except at its end.
func (s *stream) send(event string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if event != "summary" {
		s.failure = nil
	}
	s.writeEvent(event, data)
}

// sendJSON writes an event with a value that has a JSON encoding.
func (s *stream) sendJSON(event string, value any) {
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // texts and booleans have an encoding
	s.send(event, data.Bytes())
}

// fail writes a failure event, unless the last event of the view was the same.
func (s *stream) fail(e *pb.Error) {
	data := s.encode(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Equal(s.failure, data) {
		return
	}
	s.failure = data
	s.writeEvent("failure", data)
}

// comment writes a comment, which keeps proxies from ending a quiet stream.
func (s *stream) comment() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write([]byte(": \n\n"))
}

// writeEvent writes an event. The caller holds mu.
func (s *stream) writeEvent(event string, data []byte) {
	s.write(slices.Concat([]byte("event: "+event+"\ndata: "), bytes.TrimRight(data, "\n"), []byte("\n\n")))
}

// write writes to a client that may be gone or too slow, which ends the stream. The caller
// holds mu.
func (s *stream) write(data []byte) {
	_, err := s.w.Write(data)
	if err == nil {
		err = http.NewResponseController(s.w).Flush()
	}
	if err != nil {
		s.failed()
	}
}
