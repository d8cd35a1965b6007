package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

const (
	// defaultLimit and maxLimit are numbers of events in an answer of History.
	defaultLimit, maxLimit = 100, 1000
	// maxGate bounds the name of a kind of gate.
	maxGate = 32
)

// reasons are the reasons for which gates refuse writes.
var reasons = []string{"stale", "tokenless", "jump exceeded", "unsigned"}

// History returns the recent events of a lock, newest first.
func (s *Service) History(ctx context.Context, r *pb.HistoryRequest) (*pb.HistoryResponse, error) {
	if err := s.router.RequireLeader(); err != nil {
		return nil, err
	}
	return s.LocalHistory(ctx, r)
}

// LocalHistory returns the events of a lock that this member knows.
func (s *Service) LocalHistory(ctx context.Context, r *pb.HistoryRequest) (*pb.HistoryResponse, error) {
	name := fencing.Resource(r.Resource)
	if err := name.Validate(); err != nil {
		return nil, err
	}
	limit := cmp.Or(int(r.Limit), defaultLimit)
	if limit < 0 || limit > maxLimit {
		return nil, fmt.Errorf("%w: limit (%d) must be from 1 to %d", engine.ErrInvalid, limit, maxLimit)
	}
	events, refusals, truncated := s.recorder.of(name)
	list := append(s.fromEvents(ctx, name, events), s.fromEvents(ctx, name, refusals)...)
	slices.Reverse(list) // so the later of two events at the same time comes first
	slices.SortStableFunc(list, func(a, b entry) int { return cmp.Compare(b.at, a.at) })
	response := &pb.HistoryResponse{Since: timeText(s.recorder.start()), Truncated: truncated || len(list) > limit}
	for _, e := range list[:min(limit, len(list))] {
		response.Events = append(response.Events, e.event)
	}
	return response, nil
}

// entry is an event of an answer, with its time for sorting.
type entry struct {
	at    int64
	event *pb.HistoryEvent
}

// fromEvents converts the events of a lock to what the caller may see.
func (s *Service) fromEvents(ctx context.Context, name fencing.Resource, events []event) []entry {
	var list []entry
	for i := range events {
		e := &events[i]
		party := visible(ctx, name, engine.Party{Holder: e.holder, User: e.user, Session: e.session, Nonce: e.nonce,
			Slot: int(e.slot), Token: e.token}, time.Time{})
		if party.Kind = ""; e.slot > 0 { // an event does not tell exclusive from shared
			party.Kind = engine.Permit.String()
		}
		shown := &pb.HistoryEvent{Time: timeText(time.Unix(0, e.at)), Type: e.kind.String(), Party: party,
			Mode: wire.ModeText(e.mode), Duration: wire.DurationText(s.duration(events[:i], e))}
		if r := e.refusal; r != nil {
			shown.Gate, shown.Reason = r.Gate, r.Reason
			if auth.Owns(ctx, e.user) || auth.Can(ctx, auth.Break, string(name)) { // the mark is the token of another lease
				shown.Mark = uint64(r.Mark)
			}
		}
		list = append(list, entry{e.at, shown})
	}
	return list
}

// duration returns how long the attempt of an event had waited before it was granted or
// gave up, or had held the lock before it ended. It is 0 if unknown.
func (s *Service) duration(earlier []event, e *event) time.Duration {
	begin := Granted
	switch e.kind {
	case Waiting, Refused:
		return 0
	case Granted, Cancelled:
		begin = Waiting
	}
	for i := len(earlier) - 1; i >= 0; i-- {
		if earlier[i].kind == begin && earlier[i].sameAttempt(e) {
			return max(time.Millisecond, time.Duration(e.at-earlier[i].at).Round(time.Millisecond))
		}
	}
	if begin == Granted && e.mode == engine.Correctness {
		if since := s.recorder.Granted(e.token); !since.IsZero() {
			return max(time.Second, time.Unix(0, e.at).Sub(since).Round(time.Second))
		}
	}
	return 0
}

// visible returns a party as the caller may see it at a time.
func visible(ctx context.Context, name fencing.Resource, p engine.Party, now time.Time) *pb.Party {
	shown := auth.Visible(ctx, engine.Status{Resource: name, Holders: []engine.Party{p}}).Holders[0]
	return wire.FromParty(&shown, now)
}

func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// start returns when the Recorder began.
func (r *Recorder) start() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since
}

// ReportRefusal records a write that a gate refused.
func (s *Service) ReportRefusal(ctx context.Context, r *pb.ReportRefusalRequest) (*pb.ReportRefusalResponse, error) {
	name := fencing.Resource(r.Resource)
	if err := name.Validate(); err != nil {
		return nil, err
	}
	reason := cmp.Or(r.Reason, reasons[0])
	switch {
	case !slices.Contains(reasons, reason):
		return nil, fmt.Errorf("%w: reason (%.40q) must be one of %q", engine.ErrInvalid, r.Reason, reasons)
	case r.Token > uint64(fencing.MaxToken) || r.Mark > uint64(fencing.MaxToken):
		return nil, fmt.Errorf("%w: token (%d) and mark (%d) must be at most %d", engine.ErrInvalid, r.Token, r.Mark,
			fencing.MaxToken)
	case r.Gate == "" || len(r.Gate) > maxGate || fencing.Resource(r.Gate).Validate() != nil:
		return nil, fmt.Errorf("%w: gate (%.40q) must be the kind of a gate, such as sql, of at most %d bytes",
			engine.ErrInvalid, r.Gate, maxGate)
	}
	if err := engine.ValidateHolder(r.Holder); err != nil {
		return nil, err
	}
	if err := s.router.RequireLeader(); err != nil {
		return nil, err
	}
	s.recorder.Refuse(name, &engine.Party{Holder: r.Holder, User: auth.UserName(ctx), Token: fencing.Token(r.Token)},
		Refusal{Mark: fencing.Token(r.Mark), Gate: r.Gate, Reason: reason})
	s.metrics.GateRefused(r.Gate, reason)
	return &pb.ReportRefusalResponse{}, nil
}
