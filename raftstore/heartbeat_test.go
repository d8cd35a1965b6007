package raftstore

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/raftstore/transport"
)

// fastPath gives the in-memory transport the heartbeat handler of the library's TCP transport,
// which runs outside of the goroutine that owns the state. It can also drop requests to a
// peer, and delay votes.
type fastPath struct {
	*raft.InmemTransport
	requests chan raft.RPC

	mu        sync.Mutex
	handler   func(raft.RPC)
	drop      func(target raft.ServerAddress, request any) bool
	heldVotes chan struct{} // votes for this node are delivered when it is closed
}

func newFastPath(address string, stop <-chan struct{}) *fastPath {
	_, inner := raft.NewInmemTransport(raft.ServerAddress(address))
	f := &fastPath{InmemTransport: inner, requests: make(chan raft.RPC)}
	go f.receive(stop)
	return f
}

func (f *fastPath) receive(stop <-chan struct{}) {
	for {
		select {
		case rpc := <-f.InmemTransport.Consumer():
			f.mu.Lock()
			handler := f.handler
			f.mu.Unlock()
			if a, ok := rpc.Command.(*raft.AppendEntriesRequest); ok && isHeartbeat(a) && handler != nil {
				handler(rpc)
				continue
			}
			select {
			case f.requests <- rpc:
			case <-stop:
				return
			}
		case <-stop:
			return
		}
	}
}

func isHeartbeat(a *raft.AppendEntriesRequest) bool {
	return a.PrevLogEntry == 0 && a.PrevLogTerm == 0 && len(a.Entries) == 0 && a.LeaderCommitIndex == 0
}

func (f *fastPath) Consumer() <-chan raft.RPC { return f.requests }

func (f *fastPath) SetHeartbeatHandler(handler func(raft.RPC)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handler = handler
}

var errDropped = errors.New("dropped")

func (f *fastPath) dropping(drop func(raft.ServerAddress, any) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop = drop
}

func (f *fastPath) dropped(target raft.ServerAddress, request any) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.drop != nil && f.drop(target, request)
}

func (f *fastPath) AppendEntries(id raft.ServerID, target raft.ServerAddress, a *raft.AppendEntriesRequest,
	r *raft.AppendEntriesResponse) error {
	if f.dropped(target, a) {
		return errDropped
	}
	return f.InmemTransport.AppendEntries(id, target, a, r)
}

func (f *fastPath) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (f *fastPath) RequestVote(id raft.ServerID, target raft.ServerAddress, a *raft.RequestVoteRequest,
	r *raft.RequestVoteResponse) error {
	if f.dropped(target, a) {
		return errDropped
	}
	err := f.InmemTransport.RequestVote(id, target, a, r)
	if f.heldVotes != nil {
		<-f.heldVotes
	}
	return err
}

func (f *fastPath) RequestPreVote(id raft.ServerID, target raft.ServerAddress, a *raft.RequestPreVoteRequest,
	r *raft.RequestPreVoteResponse) error {
	if f.dropped(target, a) {
		return errDropped
	}
	return f.InmemTransport.RequestPreVote(id, target, a, r)
}

// entries records what was committed at each index.
type entries struct {
	noopFSM
	mu sync.Mutex
	at map[uint64]string
}

func (e *entries) Apply(log *raft.Log) any {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at[log.Index] = string(log.Data)
	return nil
}

// lateVote runs the scenario of hashicorp/raft 695 on three nodes. Node a starts an election
// and b votes for it, but the vote is delayed. Meanwhile c is elected in the next term, and a
// receives its heartbeat. Then the delayed vote arrives. lateVote returns the entries that a
// and c have committed.
func lateVote(t *testing.T, wrap func(*fastPath) raft.Transport) (a, c map[uint64]string) {
	stop := make(chan struct{})
	defer close(stop)
	late := make(chan struct{})
	names := []string{"a", "b", "c"}
	waits := map[string]time.Duration{"a": time.Second, "b": time.Hour, "c": 5 * time.Second}
	transports, engines, machines := map[string]*fastPath{}, map[string]*raft.Raft{}, map[string]*entries{}
	var configuration raft.Configuration
	for _, name := range names {
		transports[name] = newFastPath(name, stop)
		configuration.Servers = append(configuration.Servers, raft.Server{ID: raft.ServerID(name),
			Address: raft.ServerAddress(name)})
	}
	transports["a"].heldVotes = late
	for _, from := range names {
		for _, to := range names {
			transports[from].InmemTransport.Connect(raft.ServerAddress(to), transports[to].InmemTransport)
		}
	}
	isVote := func(request any) bool {
		switch request.(type) {
		case *raft.RequestVoteRequest, *raft.RequestPreVoteRequest:
			return true
		}
		return false
	}
	// a receives only heartbeats of c, and c does not receive a's vote requests.
	transports["a"].dropping(func(to raft.ServerAddress, request any) bool {
		_, vote := request.(*raft.RequestVoteRequest)
		return to == "c" && vote
	})
	transports["c"].dropping(func(to raft.ServerAddress, request any) bool {
		entry, ok := request.(*raft.AppendEntriesRequest)
		return to == "a" && (isVote(request) || ok && !isHeartbeat(entry))
	})
	for _, name := range names {
		config := Config{ID: name, HeartbeatTimeout: waits[name], Logger: quiet}.filled().engine(nil)
		config.HeartbeatTimeout, config.LeaderLeaseTimeout = waits[name], waits[name]
		config.ElectionTimeout = waits[name]
		if name == "a" {
			config.ElectionTimeout = time.Hour // it stays a candidate
		}
		storage := MemoryStorage()
		machines[name] = &entries{at: map[uint64]string{}}
		transport := wrap(transports[name])
		require.NoError(t, raft.BootstrapCluster(config, storage.Log, storage.Stable, storage.Snapshots, transport,
			configuration))
		engine, err := raft.NewRaft(config, machines[name], storage.Log, storage.Stable, storage.Snapshots, transport)
		require.NoError(t, err)
		engines[name] = engine
		defer func() { require.NoError(t, engine.Shutdown().Error()) }()
	}
	eventually(t, "c leads", func() bool { return engines["c"].State() == raft.Leader })
	eventually(t, "a knows the new term", func() bool { return engines["a"].CurrentTerm() == engines["c"].CurrentTerm() })
	transports["a"].dropping(func(to raft.ServerAddress, _ any) bool { return to == "c" })
	transports["c"].dropping(func(to raft.ServerAddress, _ any) bool { return to == "a" })
	synctest.Wait()
	close(late)
	synctest.Wait()
	_ = engines["a"].Apply([]byte("from a"), time.Second).Error()
	require.NoError(t, engines["c"].Apply([]byte("from c"), time.Second).Error())
	return machines["a"].at, machines["c"].at
}

func TestHeartbeatFastPathSplitsHistory(t *testing.T) {
	differ := func(a, c map[uint64]string) bool {
		for index, data := range c {
			if other, ok := a[index]; ok && other != data {
				return true
			}
		}
		return false
	}
	t.Run("with the fast path two entries are committed at one index", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, c := lateVote(t, func(f *fastPath) raft.Transport { return f })
			require.True(t, differ(a, c), "a has %v, c has %v: if the library no longer does this, Sequential can be removed", a,
				c)
		})
	})
	t.Run("without it the nodes commit the same entries", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, c := lateVote(t, func(f *fastPath) raft.Transport {
				return transport.Sequential{Transport: f, Progress: &transport.Progress{},
					Memory:  &transport.Memory{Voter: func(raft.ServerID) bool { return false }},
					Durable: func(uint64) error { return nil }}
			})
			require.False(t, differ(a, c), "a has %v, c has %v", a, c)
			require.Contains(t, mapValues(c), "from c")
		})
	})
}

func mapValues(m map[uint64]string) (values []string) {
	for _, v := range m {
		values = append(values, v)
	}
	return values
}
