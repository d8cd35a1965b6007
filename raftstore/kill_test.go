package raftstore

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/logstore"
)

// ledger records the grants that clients received: every token once, and increasing per
// lock.
type ledger struct {
	mu     sync.Mutex
	tokens map[fencing.Token]string
	last   map[fencing.Resource]fencing.Token
	count  map[fencing.Resource]int
	total  int
	faults []string
}

func newLedger() *ledger {
	return &ledger{tokens: map[fencing.Token]string{}, last: map[fencing.Resource]fencing.Token{},
		count: map[fencing.Resource]int{}}
}

func (l *ledger) note(who string, name fencing.Resource, token fencing.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other, ok := l.tokens[token]; ok {
		l.faults = append(l.faults, fmt.Sprintf("token %d was granted to %s and to %s", token, other, who))
	}
	if token <= l.last[name] {
		l.faults = append(l.faults, fmt.Sprintf("token %d of %s after %d", token, name, l.last[name]))
	}
	l.tokens[token], l.last[name] = who, token
	l.count[name]++
	l.total++
}

// handed returns how often a lock was granted.
func (l *ledger) handed(name fencing.Resource) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count[name]
}

func (l *ledger) grants() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// shared is the lock that some of the workers compete for.
const shared fencing.Resource = "shared lock"

// worker is a client of the kill test. Workers that compete for one lock wait for it, so that
// kills also hit queues and handoffs.
type worker struct {
	name     fencing.Resource
	contends bool
	id       engine.SessionID

	nonce engine.Nonce // of the grant that it holds at the end
	token fencing.Token
	err   error
}

// acquire repeats an attempt until it is granted. When the leader changes, a queued attempt is
// repeated with the same nonce and keeps its place.
func (w *worker) acquire(ps *processes) (answered, error) {
	return ps.ask(call{Op: "acquire", Session: w.id, Nonce: w.nonce, Resource: w.name, Wait: w.contends})
}

// work acquires and releases a lock until it is stopped. A worker that does not compete keeps
// its last grant. Each attempt is repeated while its grant is held, and must return the same
// grant.
func (l *ledger) work(ps *processes, w *worker, stop <-chan struct{}) error {
	if _, err := ps.ask(call{Op: "open", Session: w.id}); err != nil {
		return err
	}
	for {
		w.nonce++
		first, err := w.acquire(ps)
		if err != nil {
			return err
		}
		l.note(fmt.Sprintf("%x attempt %d", w.id[:2], w.nonce), w.name, first.Token)
		again, err := w.acquire(ps)
		if err != nil {
			return err
		}
		if again.Token != first.Token {
			return fmt.Errorf("attempt %d was granted %d and then %d", w.nonce, first.Token, again.Token)
		}
		select {
		case <-stop:
			if w.token = first.Token; !w.contends {
				return nil
			}
		default:
		}
		if _, err = ps.ask(call{Op: "release", Session: w.id, Nonce: w.nonce}); err != nil || w.token != fencing.None {
			return err
		}
	}
}

func TestKillTheLeader(t *testing.T) {
	for kind, kills := range map[logstore.Kind]int{logstore.WAL: 12, logstore.Bolt: 6} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			killLeaders(t, kind, kills)
		})
	}
}

// killLeaders kills one leader after the other while clients acquire locks. Half of the clients
// have their own lock, and half compete for one.
func killLeaders(t *testing.T, kind logstore.Kind, kills int) {
	ps := startProcesses(t, 3, kind, DefaultHeartbeatTimeout) // the clients repeat every call
	l := newLedger()
	stop := make(chan struct{})
	var workers []*worker
	for i := range 8 {
		w := &worker{id: engine.NewSessionID(), name: shared, contends: i%2 == 0}
		if !w.contends {
			w.name = fencing.Resource(fmt.Sprint("lock ", i))
		}
		workers = append(workers, w)
	}
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() { w.err = l.work(ps, w, stop) })
	}
	var gaps []time.Duration
	for range kills {
		before, handed := l.grants(), l.handed(shared)
		eventually(t, "grants, and handoffs", func() bool {
			return l.grants() > before+2*len(workers) && l.handed(shared) > handed+2
		})
		victim := ps.leader()
		victim.kill()
		killed, since := l.grants(), engine.MonotonicClock().Now()
		eventually(t, "a grant after the kill", func() bool { return l.grants() > killed })
		gaps = append(gaps, engine.MonotonicClock().Now().Since(since))
		victim.start()
		eventually(t, "the victim is back", func() bool {
			a, err := victim.call(call{Op: "status"})
			return err == nil && a.Status.Leader != "" && a.Status.Chain.Index > 0
		})
	}
	close(stop)
	wg.Wait()
	require.Empty(t, l.faults)
	for _, w := range workers {
		require.NoError(t, w.err)
		if w.contends {
			continue
		}
		a, err := w.acquire(ps)
		require.NoError(t, err)
		require.Equal(t, w.token, a.Token, "an acknowledged grant is never lost")
	}
	ps.agree()
	slices.Sort(gaps)
	t.Logf("%d grants, %d of them of the shared lock, %d kills; first grant after a kill: median %v, longest %v",
		l.grants(), l.handed(shared), kills, gaps[len(gaps)/2], gaps[len(gaps)-1])
}

func TestPausedLeaderProcess(t *testing.T) {
	t.Parallel()
	ps := startProcesses(t, 3, DefaultLogStore, slowHeartbeat)
	mine, other := engine.NewSessionID(), engine.NewSessionID()
	for _, id := range []engine.SessionID{mine, other} {
		_, err := ps.ask(call{Op: "open", Session: id})
		require.NoError(t, err)
	}
	first, err := ps.ask(call{Op: "acquire", Session: mine, Nonce: 1, Resource: "a"})
	require.NoError(t, err)

	old := ps.leader()
	require.NoError(t, old.cmd.Process.Signal(syscall.SIGSTOP))
	rest := &processes{t: t, all: slices.DeleteFunc(slices.Clone(ps.all), func(p *process) bool { return p == old })}
	_, err = rest.ask(call{Op: "release", Session: mine, Nonce: 1})
	require.NoError(t, err)
	second, err := rest.ask(call{Op: "acquire", Session: other, Nonce: 1, Resource: "a"})
	require.NoError(t, err)
	require.Greater(t, second.Token, first.Token)

	require.NoError(t, old.cmd.Process.Signal(syscall.SIGCONT))
	for nonce := engine.Nonce(2); nonce < 20; nonce++ { // it may not have noticed the new leader
		a, err := old.call(call{Op: "acquire", Session: mine, Nonce: nonce, Resource: "a"})
		require.Error(t, err, "it granted %d although %d is held", a.Token, second.Token)
	}
	again, err := ps.ask(call{Op: "acquire", Session: other, Nonce: 1, Resource: "a"})
	require.NoError(t, err)
	require.Equal(t, second.Token, again.Token)
	ps.agree()
}

func TestProcessesJoinLeaveTransferAndRestore(t *testing.T) {
	t.Parallel()
	ps := startProcesses(t, 3, DefaultLogStore, slowHeartbeat)
	id := engine.NewSessionID()
	_, err := ps.ask(call{Op: "open", Session: id})
	require.NoError(t, err)
	first, err := ps.ask(call{Op: "acquire", Session: id, Nonce: 1, Resource: "a"})
	require.NoError(t, err)
	saved, err := ps.leader().call(call{Op: "save"})
	require.NoError(t, err)

	old := ps.leader()
	_, err = old.call(call{Op: "transfer"})
	require.NoError(t, err)
	next := ps.leader()
	require.NotEqual(t, old.spec.ID, next.spec.ID)
	second, err := ps.ask(call{Op: "acquire", Session: id, Nonce: 2, Resource: "b"})
	require.NoError(t, err)
	require.Greater(t, second.Token, first.Token)

	old.kill()
	_, err = next.call(call{Op: "remove", ID: old.spec.ID})
	require.NoError(t, err)
	fresh := newProcess(t, "p9", DefaultLogStore)
	fresh.spec.Heartbeat = slowHeartbeat
	fresh.start()
	ps.join(fresh)
	ps.all = append(slices.DeleteFunc(ps.all, func(p *process) bool { return p == old }), fresh)
	ps.agree()

	leaving := ps.leader()
	require.NoError(t, leaving.cmd.Process.Signal(syscall.SIGTERM))
	<-leaving.exited
	require.Zero(t, leaving.cmd.ProcessState.ExitCode(), "it transfers leadership and exits")
	require.NotEqual(t, leaving.spec.ID, ps.leader().spec.ID)
	leaving.start()

	restored, err := ps.leader().call(call{Op: "restore", Data: saved.Data})
	require.NoError(t, err)
	require.GreaterOrEqual(t, restored.Token, second.Token+fencing.FloorStep)
	_, err = ps.ask(call{Op: "acquire", Session: id, Nonce: 3, Resource: "b"})
	require.ErrorContains(t, err, engine.ErrExpired.Error(), "a restore ends all sessions")
	_, err = ps.ask(call{Op: "open", Session: id})
	require.NoError(t, err)
	third, err := ps.ask(call{Op: "acquire", Session: id, Nonce: 3, Resource: "b"})
	require.NoError(t, err)
	require.Greater(t, third.Token, restored.Token)
	ps.agree()
}
