package virtual

import (
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leased-project/leased/raftstore/transport"
)

// rpcTimeout is after what time a node gives a call to a peer up.
const rpcTimeout = 100 * time.Millisecond

var errNoAnswer = errors.New("no answer")

// way is one direction between two nodes.
type way struct{ from, to string }

// network carries calls between nodes. Each direction can be cut, made slow or
// made to lose messages by itself, so that a call can be carried out and its
// answer lost.
type network struct {
	mu    sync.Mutex
	wires map[string]*wire // of the nodes that are up
	cut   map[way]int      // by how many faults
	slow  map[way]time.Duration
	lossy map[way]int // percent
	dice  *rand.Rand
}

func newNetwork(seed uint64) *network {
	return &network{wires: map[string]*wire{}, cut: map[way]int{}, slow: map[way]time.Duration{}, lossy: map[way]int{},
		dice: rand.New(rand.NewPCG(seed, 1))}
}

// wire is a transport.Transport on the engine's in-memory transport.
type wire struct {
	*raft.InmemTransport
	network *network
	name    string
}

var _ transport.Transport = (*wire)(nil)

// plug connects a node that is opened, in the place of an earlier life of it.
func (n *network) plug(name string) *wire {
	_, inmem := raft.NewInmemTransportWithTimeout(raft.ServerAddress(name), rpcTimeout)
	w := &wire{InmemTransport: inmem, network: n, name: name}
	n.mu.Lock()
	defer n.mu.Unlock()
	for other, peer := range n.wires {
		if other != name {
			peer.Connect(raft.ServerAddress(name), inmem)
			inmem.Connect(raft.ServerAddress(other), peer.InmemTransport)
		}
	}
	n.wires[name] = w
	return w
}

// unplug cuts a node off that crashes.
func (n *network) unplug(w *wire) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wires[w.name] != w {
		return
	}
	delete(n.wires, w.name)
	for _, peer := range n.wires {
		peer.Disconnect(raft.ServerAddress(w.name))
	}
	w.DisconnectAll()
}

// open reports whether messages of two nodes that are up take a way. The caller
// holds mu.
func (n *network) open(w way) bool {
	return n.cut[w] == 0 && n.wires[w.from] != nil && n.wires[w.to] != nil
}

// sever cuts some ways, and returns what mends them, and whether one was open.
func (n *network) sever(ways []way) (mend func(), torn bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range ways {
		torn = torn || n.open(w)
		n.cut[w]++
	}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, w := range ways {
			n.cut[w]--
		}
	}, torn
}

// hamper makes some ways slow and lossy, until mended. It reports whether one
// that is open got worse.
func (n *network) hamper(ways []way, delay time.Duration, lossy int) (mend func(), worse bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range ways {
		worse = worse || n.open(w) && (delay > n.slow[w] || lossy > n.lossy[w])
		n.slow[w], n.lossy[w] = delay, lossy
	}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, w := range ways {
			delete(n.slow, w)
			delete(n.lossy, w)
		}
	}, worse
}

// pass takes a message along a way.
func (n *network) pass(w way) error {
	n.mu.Lock()
	lost := n.cut[w] > 0 || n.dice.IntN(100) < n.lossy[w]
	delay := time.Duration(n.dice.Int64N(int64(n.slow[w] + time.Millisecond)))
	n.mu.Unlock()
	if lost {
		<-time.After(rpcTimeout)
		return errNoAnswer
	}
	<-time.After(delay)
	return nil
}

// call takes a request to a peer, and its answer back.
func (w *wire) call(target raft.ServerAddress, do func() error) error {
	if err := w.network.pass(way{w.name, string(target)}); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return w.network.pass(way{string(target), w.name})
}

// AppendEntries carries entries and heartbeats.
func (w *wire) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	return w.call(target, func() error { return w.InmemTransport.AppendEntries(id, target, args, resp) })
}

// RequestVote carries a request for a vote.
func (w *wire) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return w.call(target, func() error { return w.InmemTransport.RequestVote(id, target, args, resp) })
}

// RequestPreVote carries the question whether a vote would be given.
func (w *wire) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return w.call(target, func() error { return w.InmemTransport.RequestPreVote(id, target, args, resp) })
}

// InstallSnapshot carries a state.
func (w *wire) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	return w.call(target, func() error { return w.InmemTransport.InstallSnapshot(id, target, args, resp, data) })
}

// TimeoutNow carries the order to stand for election.
func (w *wire) TimeoutNow(id raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return w.call(target, func() error { return w.InmemTransport.TimeoutNow(id, target, args, resp) })
}
