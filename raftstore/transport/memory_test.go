package transport_test

import (
	"math"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/raftstore/transport"
)

// follower answers requests with what a test says.
type follower struct {
	transport.Transport
	answer   raft.AppendEntriesResponse
	err      error
	requests int
	during   func() // while a request is on its way
}

func (f *follower) AppendEntries(_ raft.ServerID, _ raft.ServerAddress, _ *raft.AppendEntriesRequest,
	response *raft.AppendEntriesResponse) error {
	f.requests++
	*response = f.answer
	if during := f.during; during != nil {
		f.during = nil
		during()
	}
	return f.err
}

func (f *follower) RequestVote(raft.ServerID, raft.ServerAddress, *raft.RequestVoteRequest,
	*raft.RequestVoteResponse) error {
	f.requests++
	return f.err
}

// leader is a node whose only voter is "n2".
type leader struct {
	transport.Sequential
	memory   transport.Memory
	follower follower
	voter    bool
	refused  int
	told     []uint64 // the entries that n1 lacks
}

func newLeader() *leader {
	l := &leader{voter: true}
	l.memory.Voter = func(raft.ServerID) bool { return l.voter }
	l.memory.Refused = func(raft.ServerID, uint64, uint64) { l.refused++ }
	l.memory.Told = func(_ raft.ServerID, lost uint64) { l.told = append(l.told, lost) }
	l.Sequential = transport.Sequential{Transport: &l.follower, Progress: &transport.Progress{}, Memory: &l.memory,
		Durable: func(uint64) error { return nil }}
	return l
}

// send sends entries up to last in a term. The follower has an entry more or less, says
// which term it is in, and whether it accepted.
func (l *leader) send(term, last, commit, lastLog, answerTerm uint64, success bool) error {
	l.follower.answer = raft.AppendEntriesResponse{Term: answerTerm, LastLog: lastLog, Success: success}
	return l.AppendEntries("n2", "", &raft.AppendEntriesRequest{Term: term, PrevLogEntry: last, LeaderCommitIndex: commit},
		&raft.AppendEntriesResponse{})
}

// vote checks a vote request of n2.
func (l *leader) vote(term, last uint64) error {
	return l.memory.Check(&raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ID: []byte("n2")}, Term: term,
		LastLogIndex: last})
}

// preVote checks a pre-vote request of n2 for a term that it has not begun.
func (l *leader) preVote(term, last uint64) error {
	return l.memory.Check(&raft.RequestPreVoteRequest{RPCHeader: raft.RPCHeader{ID: []byte("n2")}, Term: term,
		LastLogIndex: last})
}

// lead passes on a request that n2 sends as the leader.
func (l *leader) lead(term, commit uint64) error {
	return l.memory.Check(&raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ID: []byte("n2")}, Term: term,
		LeaderCommitIndex: commit})
}

func TestMemory(t *testing.T) {
	for name, c := range map[string]struct {
		then    func(t *testing.T, l *leader) error // after n2 has acknowledged 10 in term 2, with 5 committed
		refused bool
	}{
		"the same log":               {func(_ *testing.T, l *leader) error { return l.send(2, 10, 5, 10, 2, true) }, false},
		"a heartbeat":                {func(_ *testing.T, l *leader) error { return l.send(2, 0, 0, 10, 2, true) }, false},
		"a shorter log":              {func(_ *testing.T, l *leader) error { return l.send(2, 0, 0, 9, 2, true) }, true},
		"a shorter log in a refusal": {func(_ *testing.T, l *leader) error { return l.send(2, 12, 5, 9, 2, false) }, true},
		"another leader truncated it": {func(t *testing.T, l *leader) error {
			require.NoError(t, l.send(2, 0, 0, 7, 3, false))
			return l.send(4, 0, 0, 7, 4, true)
		}, false},
		"committed entries are lost in a later term": {func(_ *testing.T, l *leader) error {
			return l.send(4, 0, 0, 4, 4, true)
		}, true},
		"committed entries are lost under another leader": {func(_ *testing.T, l *leader) error {
			return l.send(2, 0, 0, 4, 3, false)
		}, true},
		"a candidate has the committed entries": {func(_ *testing.T, l *leader) error {
			return l.vote(3, 5)
		}, false},
		"a candidate lacks a committed entry": {func(_ *testing.T, l *leader) error {
			return l.vote(3, 4)
		}, true},
		"a candidate of a later term asks for a pre-vote": {func(_ *testing.T, l *leader) error {
			return l.preVote(4, 4)
		}, true},
		"a former leader has what it called committed": {func(t *testing.T, l *leader) error {
			require.NoError(t, l.lead(3, 20))
			require.NoError(t, l.lead(3, 0), "a heartbeat")
			require.NoError(t, l.vote(4, 20))
			return l.send(4, 0, 0, 20, 4, true)
		}, false},
		"a former leader lacks what it called committed": {func(t *testing.T, l *leader) error {
			require.NoError(t, l.lead(3, 20))
			require.NoError(t, l.lead(3, 0), "a heartbeat")
			return l.send(4, 0, 0, 19, 4, true)
		}, true},
		"a learner that calls entries committed": {func(t *testing.T, l *leader) error {
			l.voter = false
			require.NoError(t, l.lead(3, 20))
			l.voter = true
			return l.send(4, 0, 0, 19, 4, true)
		}, false},
		"an answer on its way while the follower advanced": {func(t *testing.T, l *leader) error {
			l.follower.during = func() { require.NoError(t, l.send(2, 20, 20, 20, 2, true)) }
			return l.send(2, 10, 5, 10, 2, true)
		}, false},
		"a learner": {func(_ *testing.T, l *leader) error {
			l.voter = false
			return l.send(2, 0, 0, 1, 2, true)
		}, false},
		"a member that was removed and joined again": {func(_ *testing.T, l *leader) error {
			l.memory.Configured(raft.Configuration{})
			return l.send(2, 0, 0, 1, 2, true)
		}, false},
		"a member that has joined again answers a request to its former folder": {func(_ *testing.T, l *leader) error {
			l.follower.during = func() { l.memory.Configured(raft.Configuration{}) }
			return l.send(2, 0, 0, 0, 2, true)
		}, false},
		"the same, and its return came in a snapshot": {func(_ *testing.T, l *leader) error {
			l.follower.during = l.memory.Restored
			return l.send(2, 0, 0, 0, 2, true)
		}, false},
		"a member that was refused has joined again, which came in a snapshot": {func(t *testing.T, l *leader) error {
			require.Error(t, l.send(2, 0, 0, 1, 2, true))
			l.memory.Restored()
			return l.send(3, 0, 0, 10, 3, true)
		}, false},
		"a snapshot does not make entries that are lost come back": {func(t *testing.T, l *leader) error {
			l.memory.Restored()
			return l.send(2, 0, 0, 4, 2, true)
		}, true},
		"a member that still has its vote": {func(_ *testing.T, l *leader) error {
			l.memory.Configured(raft.Configuration{Servers: []raft.Server{{ID: "n2"}}})
			return l.send(2, 0, 0, 1, 2, true)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeader()
			require.NoError(t, l.send(2, 10, 5, 10, 2, true))
			err := c.then(t, l)
			require.Equal(t, c.refused, l.memory.IsRefused("n2"))
			if !c.refused {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, transport.ErrWentBack)
			require.Equal(t, 1, l.refused)
			before := l.follower.requests
			require.ErrorIs(t, l.send(5, 0, 0, 100, 5, true), transport.ErrWentBack, "it does not count any more")
			require.ErrorIs(t, l.RequestVote("n2", "", &raft.RequestVoteRequest{Term: 5}, &raft.RequestVoteResponse{}),
				transport.ErrWentBack)
			require.ErrorIs(t, l.vote(9, 100), transport.ErrWentBack)
			require.ErrorIs(t, l.memory.Check(&raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ID: []byte("n2")}}),
				transport.ErrWentBack)
			require.Equal(t, before, l.follower.requests, "nothing was sent")
			require.Equal(t, 1, l.refused, "it is reported once")
			l.memory.Configured(raft.Configuration{})
			require.NoError(t, l.send(5, 0, 0, 1, 5, true), "it has joined again")
		})
	}
}

// A request that may be older than the acknowledgement is rejected, but proves nothing.
func TestMemoryOfDelayedCandidate(t *testing.T) {
	l := newLeader()
	require.NoError(t, l.send(2, 10, 5, 10, 2, true))
	for _, err := range []error{l.vote(2, 4), l.preVote(3, 4), l.preVote(0, 4)} {
		require.Error(t, err)
		require.NotErrorIs(t, err, transport.ErrWentBack)
	}
	require.NoError(t, l.lead(3, 20))
	for _, err := range []error{l.vote(9, 19), l.preVote(9, 19)} {
		require.ErrorContains(t, err, "has 19 entries of the 20",
			"it may have stepped down and received the last entry since")
		require.NotErrorIs(t, err, transport.ErrWentBack)
	}
	require.False(t, l.memory.IsRefused("n2"))
	require.NoError(t, l.send(2, 20, 20, 20, 2, true))
}

// A refused member learns of it from the text of its peers' errors.
func TestRefusedMemberIsTold(t *testing.T) {
	l := newLeader()
	peer := newLeader() // which refuses n2
	require.NoError(t, peer.send(2, 10, 5, 10, 2, true))
	require.Error(t, peer.send(2, 0, 0, 9, 2, true))
	l.follower.err = errorText("remote: " + peer.vote(9, 100).Error())
	require.Error(t, l.RequestVote("n2", "", &raft.RequestVoteRequest{Term: 5}, &raft.RequestVoteResponse{}))
	l.follower.err = errorText(transport.ErrWentBack.Error())
	require.Error(t, l.RequestVote("n2", "", &raft.RequestVoteRequest{Term: 5}, &raft.RequestVoteResponse{}))
	require.Equal(t, []uint64{10, math.MaxUint64}, l.told)
	l.follower.err = errorText("connection refused")
	require.Error(t, l.RequestVote("n2", "", &raft.RequestVoteRequest{Term: 5}, &raft.RequestVoteResponse{}))
	require.Len(t, l.told, 2)
}

// errorText is an error that was sent as a text.
type errorText string

func (e errorText) Error() string { return string(e) }

// An entry without contents is not sent.
func TestSnapshotEndIsNotSent(t *testing.T) {
	l := newLeader()
	entries := []*raft.Log{{Index: 1, Term: 1}, {Index: 2, Term: 1, Type: transport.SnapshotEnd}}
	err := l.AppendEntries("n2", "", &raft.AppendEntriesRequest{Term: 1, Entries: entries}, &raft.AppendEntriesResponse{})
	require.ErrorIs(t, err, raft.ErrLogNotFound)
	require.Zero(t, l.follower.requests)
}
