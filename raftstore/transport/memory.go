package transport

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/hashicorp/raft"
)

// ErrWentBack is the refusal of a voter whose log is shorter than what it has
// acknowledged: its data folder is older than its last answers. The refused member finds
// the text in the answers of its peers.
var ErrWentBack = errors.New("the data folder of this member has gone back in time")

// Memory remembers what each voter has acknowledged to this node as the leader and what it
// has called committed as the leader, and refuses a voter that has lost some of it. It
// forgets everything when the process ends. All methods may be called concurrently.
//
// A voter never loses a committed entry that it has had, and while one leader
// leads it loses none that it has acknowledged to that leader. So a shorter log proves
// that its data folder was replaced by an older one. Such a voter has also forgotten
// votes. See docs/adr/0025-member-that-went-back-in-time.md.
type Memory struct {
	// Voter reports whether a member has a vote in the newest configuration. Learners
	// are not compared: a member that joins again starts with an empty log, and
	// becomes a voter with a log that is longer than before.
	Voter func(id raft.ServerID) bool
	// Refused is called when a voter is refused for the first time. It must not call the Memory.
	Refused func(id raft.ServerID, acknowledged, reported uint64)
	// Told is called when a peer refuses this node because it lacks an entry.
	Told func(by raft.ServerID, lost uint64)

	mu      sync.Mutex
	records map[raft.ServerID]*record
}

// record is what one voter has had.
type record struct {
	committed uint64 // the largest committed entry that it has acknowledged
	term      uint64 // in which it was acknowledged
	led       uint64 // the largest entry that it has called committed as the leader
	matched   uint64 // the largest entry in inTerm, committed or not
	inTerm    uint64 // the newest term in which this node led
	lost      uint64 // an entry that it lacks, 0 if it is not refused
}

// expected is what a voter must have when it answers a request. record is nil if the member is not a voter.
type expected struct {
	record             *record
	committed, matched uint64
}

// expect returns what a member must have when it answers a request of this term, which
// is not sent yet: an answer to an earlier request may be older than the record.
func (m *Memory) expect(id raft.ServerID, term uint64) (expected, error) {
	if !m.Voter(id) {
		return expected{}, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.record(id)
	if r.lost > 0 {
		return expected{}, refusal(id, r.lost)
	}
	e := expected{record: r, committed: max(r.committed, r.led)}
	if r.inTerm == term {
		e.matched = r.matched
	}
	return e, nil
}

// answered compares an answer with what the voter must have, and records what it
// acknowledges. Entries that are not committed count only if the voter still follows
// this leader: another leader may have replaced them. If the record was dropped after
// the request was sent, the voter may have rejoined with an empty log, so the answer proves
// nothing.
func (m *Memory) answered(id raft.ServerID, e expected, request *raft.AppendEntriesRequest,
	response *raft.AppendEntriesResponse) error {
	required := e.committed
	if response.Term == request.Term {
		required = max(required, e.matched)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := e.record
	switch {
	case r == nil || r != m.records[id]:
		return nil
	case response.LastLog < required:
		return m.refuse(id, required, response.LastLog)
	case !response.Success:
		return nil
	}
	last := request.PrevLogEntry + uint64(len(request.Entries))
	if committed := min(last, request.LeaderCommitIndex); committed > r.committed {
		r.committed, r.term = committed, request.Term
	}
	if request.Term > r.inTerm {
		r.inTerm, r.matched = request.Term, 0
	}
	if request.Term == r.inTerm {
		r.matched = max(r.matched, last)
	}
	return nil
}

// record returns the record of a voter. The caller holds mu.
func (m *Memory) record(id raft.ServerID) *record {
	if m.records == nil {
		m.records = map[raft.ServerID]*record{}
	}
	if m.records[id] == nil {
		m.records[id] = &record{}
	}
	return m.records[id]
}

// Check returns an error for a request of a voter that is refused, or of a candidate
// without entries that it has had. It records what a leader calls committed.
//
// A candidate that has only just sent its request may have received the entries since. So
// a request is rejected without consequences, unless it names a newer term than that of the
// acknowledgement. The term of a leader's request proves nothing: the Raft library may read
// the commit index for it after the leader has stepped down.
func (m *Memory) Check(command any) error {
	from, ok := command.(raft.WithRPCHeader)
	if !ok {
		return nil
	}
	id := raft.ServerID(from.GetRPCHeader().ID)
	if !m.Voter(id) {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.record(id)
	if r.lost > 0 {
		return refusal(id, r.lost)
	}
	var last, term uint64 // term is the candidate's when it sent the request
	switch c := command.(type) {
	case *raft.AppendEntriesRequest:
		r.led = max(r.led, c.LeaderCommitIndex)
		return nil
	case *raft.RequestVoteRequest:
		last, term = c.LastLogIndex, c.Term
	case *raft.RequestPreVoteRequest:
		last, term = c.LastLogIndex, max(c.Term, 1)-1
	default:
		return nil
	}
	switch {
	case last >= max(r.committed, r.led):
		return nil
	case last < r.committed && term > r.term:
		return m.refuse(id, r.committed, last)
	}
	return fmt.Errorf("candidate %s has %d entries of the %d that it has had", id, last, max(r.committed, r.led))
}

// refuse marks a voter as refused, and returns the error that its requests get from now on. The caller holds mu.
func (m *Memory) refuse(id raft.ServerID, acknowledged, reported uint64) error {
	if r := m.record(id); r.lost == 0 {
		r.lost = acknowledged
		m.Refused(id, acknowledged, reported)
	}
	return refusal(id, acknowledged)
}

// lostEntry is the part of a refusal that follows ErrWentBack.
const lostEntry = ": it lacks entry %d"

func refusal(id raft.ServerID, lost uint64) error {
	return fmt.Errorf("%w"+lostEntry+"; remove member %s from the cluster, empty its data folder and let it join",
		ErrWentBack, lost, id)
}

// IsRefused reports whether a voter is refused.
func (m *Memory) IsRefused(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.records[raft.ServerID(id)]
	return r != nil && r.lost > 0
}

// Configured forgets the members without a vote in a committed configuration: they may
// join with an empty log.
func (m *Memory) Configured(c raft.Configuration) {
	voters := map[raft.ServerID]bool{}
	for _, s := range c.Servers {
		voters[s.ID] = s.Suffrage == raft.Voter
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.records {
		if !voters[id] {
			delete(m.records, id)
		}
	}
}

// Restored lifts all refusals: this node has received a snapshot in place of entries, and a refused
// member may have been removed and have rejoined in one of them. It also replaces all records, so that
// answers to earlier requests do not count. Their contents remain true: a member that has rejoined has a
// longer log.
func (m *Memory) Restored() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, r := range m.records {
		renewed := *r
		renewed.lost = 0
		m.records[id] = &renewed
	}
}

// reported reports a refusal by a peer. Its error has become a text on the way.
func (m *Memory) reported(by raft.ServerID, err error) error {
	if err == nil {
		return nil
	}
	if _, why, found := strings.Cut(err.Error(), ErrWentBack.Error()); found {
		var lost uint64
		if _, failed := fmt.Sscanf(why, lostEntry, &lost); failed != nil {
			lost = math.MaxUint64
		}
		m.Told(by, lost)
	}
	return err
}
