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

// rpcTimeout bounds a call to a peer.
const rpcTimeout = 100 * time.Millisecond

var errNoAnswer = errors.New("no answer")

// link is one direction between two nodes.
type link struct{ from, to string }

// network delivers calls between nodes. Each direction can be cut, delayed or lossy by
// itself, so that a call may be executed and its answer lost.
type network struct {
	mu         sync.Mutex
	transports map[string]*memTransport // of the nodes that are up
	cut        map[link]int             // number of faults that cut it
	slow       map[link]time.Duration
	lossy      map[link]int // percent
	random     *rand.Rand
}

func newNetwork(seed uint64) *network {
	return &network{transports: map[string]*memTransport{}, cut: map[link]int{}, slow: map[link]time.Duration{},
		lossy:  map[link]int{},
		random: rand.New(rand.NewPCG(seed, 1))}
}

// memTransport is a transport.Transport on the in-memory transport of the Raft library.
type memTransport struct {
	*raft.InmemTransport
	network *network
	name    string
}

var _ transport.Transport = (*memTransport)(nil)

// attach connects a started node, in place of its predecessor.
func (n *network) attach(name string) *memTransport {
	_, inmem := raft.NewInmemTransportWithTimeout(raft.ServerAddress(name), rpcTimeout)
	w := &memTransport{InmemTransport: inmem, network: n, name: name}
	n.mu.Lock()
	defer n.mu.Unlock()
	for other, peer := range n.transports {
		if other != name {
			peer.Connect(raft.ServerAddress(name), inmem)
			inmem.Connect(raft.ServerAddress(other), peer.InmemTransport)
		}
	}
	n.transports[name] = w
	return w
}

// detach disconnects a crashed node.
func (n *network) detach(w *memTransport) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.transports[w.name] != w {
		return
	}
	delete(n.transports, w.name)
	for _, peer := range n.transports {
		peer.Disconnect(raft.ServerAddress(w.name))
	}
	w.DisconnectAll()
}

// open reports whether a link is usable and both nodes are up. The caller holds mu.
func (n *network) open(w link) bool {
	return n.cut[w] == 0 && n.transports[w.from] != nil && n.transports[w.to] != nil
}

// cutLinks cuts links. It returns a function that repairs them, and whether one was open.
func (n *network) cutLinks(links []link) (mend func(), effective bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range links {
		effective = effective || n.open(w)
		n.cut[w]++
	}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, w := range links {
			n.cut[w]--
		}
	}, effective
}

// degrade makes links slow and lossy until mend is called. It reports whether an open
// link got worse.
func (n *network) degrade(links []link, delay time.Duration, lossy int) (mend func(), worse bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range links {
		worse = worse || n.open(w) && (delay > n.slow[w] || lossy > n.lossy[w])
		n.slow[w], n.lossy[w] = delay, lossy
	}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, w := range links {
			delete(n.slow, w)
			delete(n.lossy, w)
		}
	}, worse
}

// pass delivers a message.
func (n *network) pass(w link) error {
	n.mu.Lock()
	lost := n.cut[w] > 0 || n.random.IntN(100) < n.lossy[w]
	delay := time.Duration(n.random.Int64N(int64(n.slow[w] + time.Millisecond)))
	n.mu.Unlock()
	if lost {
		<-time.After(rpcTimeout)
		return errNoAnswer
	}
	<-time.After(delay)
	return nil
}

// call delivers a request and its answer.
func (w *memTransport) call(target raft.ServerAddress, do func() error) error {
	if err := w.network.pass(link{w.name, string(target)}); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return w.network.pass(link{string(target), w.name})
}

// AppendEntries carries entries and heartbeats.
func (w *memTransport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) error {
	return w.call(target, func() error { return w.InmemTransport.AppendEntries(id, target, args, resp) })
}

// RequestVote carries a request for a vote.
func (w *memTransport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse) error {
	return w.call(target, func() error { return w.InmemTransport.RequestVote(id, target, args, resp) })
}

// RequestPreVote carries a pre-vote request.
func (w *memTransport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest,
	resp *raft.RequestPreVoteResponse) error {
	return w.call(target, func() error { return w.InmemTransport.RequestPreVote(id, target, args, resp) })
}

// InstallSnapshot carries a snapshot.
func (w *memTransport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest,
	resp *raft.InstallSnapshotResponse, data io.Reader) error {
	return w.call(target, func() error { return w.InmemTransport.InstallSnapshot(id, target, args, resp, data) })
}

// TimeoutNow carries the request to start an election.
func (w *memTransport) TimeoutNow(id raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest,
	resp *raft.TimeoutNowResponse) error {
	return w.call(target, func() error { return w.InmemTransport.TimeoutNow(id, target, args, resp) })
}
