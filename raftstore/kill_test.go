package raftstore

import (
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/raftstore/logstore"
)

// ledger is what clients were told: every token once, and per lock ever larger
// ones.
type ledger struct {
	mu     sync.Mutex
	tokens map[fencing.Token]string
	last   map[fencing.Resource]fencing.Token
	when   []lease.Instant // of each grant
	faults []string
}

func newLedger() *ledger {
	return &ledger{tokens: map[fencing.Token]string{}, last: map[fencing.Resource]fencing.Token{}}
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
	l.when = append(l.when, lease.MonotonicClock().Now())
}

func (l *ledger) grants() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.when)
}

// work takes and releases locks until told to stop, and then keeps one. Each
// grant is asked for again while it is held: it must be the same.
func (l *ledger) work(ps *processes, worker int, stop <-chan struct{}) (held fencing.Token, id lease.SessionID, nonce lease.Nonce, err error) {
	id = lease.NewSessionID()
	if _, err = ps.ask(call{Op: "open", Session: id}); err != nil {
		return
	}
	name := fencing.Resource(fmt.Sprintf("lock %d", worker))
	for {
		nonce++
		acquire := call{Op: "acquire", Session: id, Nonce: nonce, Resource: name}
		var first, again answered
		if first, err = ps.ask(acquire); err != nil {
			return
		}
		l.note(fmt.Sprintf("worker %d attempt %d", worker, nonce), name, first.Token)
		if again, err = ps.ask(acquire); err != nil {
			return
		}
		if again.Token != first.Token {
			err = fmt.Errorf("attempt %d of worker %d was granted %d and then %d", nonce, worker, first.Token, again.Token)
			return
		}
		select {
		case <-stop:
			return first.Token, id, nonce, nil
		default:
		}
		if _, err = ps.ask(call{Op: "release", Session: id, Nonce: nonce}); err != nil {
			return
		}
	}
}

func TestKillTheLeaderTwentyTimes(t *testing.T) {
	t.Run(string(logstore.WAL), func(t *testing.T) { killLeaders(t, logstore.WAL, 20) })
	t.Run(string(logstore.Bolt), func(t *testing.T) { killLeaders(t, logstore.Bolt, 10) })
}

// killLeaders kills one leader after the other while clients take locks.
func killLeaders(t *testing.T, kind logstore.Kind, kills int) {
	const workers = 6
	ps := startProcesses(t, 3, kind)
	l := newLedger()
	stop := make(chan struct{})
	type kept struct {
		token fencing.Token
		id    lease.SessionID
		nonce lease.Nonce
		err   error
	}
	holds := make([]kept, workers)
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			k := &holds[worker]
			k.token, k.id, k.nonce, k.err = l.work(ps, worker, stop)
		})
	}
	var gaps []time.Duration
	for range kills {
		before := l.grants()
		eventually(t, "grants", func() bool { return l.grants() > before+2*workers })
		victim := ps.leader()
		victim.kill()
		killed, since := l.grants(), lease.MonotonicClock().Now()
		eventually(t, "a grant after the kill", func() bool { return l.grants() > killed })
		gaps = append(gaps, lease.MonotonicClock().Now().Since(since))
		victim.start()
		eventually(t, "the victim is back", func() bool {
			a, err := victim.call(call{Op: "status"})
			return err == nil && a.Status.Leader != "" && a.Status.Chain.Index > 0
		})
	}
	close(stop)
	wg.Wait()
	require.Empty(t, l.faults)
	for worker, k := range holds {
		require.NoError(t, k.err)
		a, err := ps.ask(call{Op: "acquire", Session: k.id, Nonce: k.nonce, Resource: fencing.Resource(fmt.Sprintf("lock %d", worker))})
		require.NoError(t, err)
		require.Equal(t, k.token, a.Token, "an acknowledged grant is never lost")
	}
	ps.agree()
	slices.Sort(gaps)
	t.Logf("%d grants, %d kills; first grant after a kill: median %v, longest %v", l.grants(), kills, gaps[len(gaps)/2], gaps[len(gaps)-1])
}

func TestPausedLeaderProcess(t *testing.T) {
	ps := startProcesses(t, 3, DefaultLog)
	mine, other := lease.NewSessionID(), lease.NewSessionID()
	for _, id := range []lease.SessionID{mine, other} {
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
	for nonce := lease.Nonce(2); nonce < 20; nonce++ { // it may still believe that it leads
		a, err := old.call(call{Op: "acquire", Session: mine, Nonce: nonce, Resource: "a"})
		require.Error(t, err, "it granted %d, though %d is held", a.Token, second.Token)
	}
	again, err := ps.ask(call{Op: "acquire", Session: other, Nonce: 1, Resource: "a"})
	require.NoError(t, err)
	require.Equal(t, second.Token, again.Token)
	ps.agree()
}

func TestDiskErrorsEndTheProcess(t *testing.T) {
	tracer, err := exec.LookPath("strace")
	require.NoError(t, err, "install strace")
	for _, kind := range kinds {
		for _, fault := range []string{"EIO", "ENOSPC"} {
			t.Run(fmt.Sprintf("%s %s", kind, fault), func(t *testing.T) {
				p := newProcess(t, "p0", kind)
				p.start(tracer, "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error="+fault+":when=60+")
				_, err := p.call(call{Op: "bootstrap"})
				require.NoError(t, err)
				ps := &processes{t: t, all: []*process{p}}
				ps.leader()
				acknowledged := fillUntilDeath(t, p)
				<-p.exited
				require.Equal(t, 3, p.cmd.ProcessState.ExitCode(), "it ends by itself")

				p.start()
				ps.leader()
				for nonce, token := range acknowledged.tokens {
					a, err := ps.ask(call{Op: "acquire", Session: acknowledged.session, Nonce: nonce, Resource: fencing.Resource(fmt.Sprint("lock ", nonce))})
					require.NoError(t, err)
					require.Equal(t, token, a.Token, "attempt %d", nonce)
				}
			})
		}
	}
}

// receipts are the grants that a client was told of.
type receipts struct {
	session lease.SessionID
	tokens  map[lease.Nonce]fencing.Token
}

// fillUntilDeath takes locks until the node is gone.
func fillUntilDeath(t *testing.T, p *process) receipts {
	t.Helper()
	r := receipts{session: lease.NewSessionID(), tokens: map[lease.Nonce]fencing.Token{}}
	_, err := p.call(call{Op: "open", Session: r.session})
	require.NoError(t, err)
	for nonce := lease.Nonce(1); ; nonce++ {
		a, err := p.call(call{Op: "acquire", Session: r.session, Nonce: nonce, Resource: fencing.Resource(fmt.Sprint("lock ", nonce))})
		if err != nil {
			require.True(t, a.Unknown || a.Refused, "a failing disk is never a refusal: %v", err)
			break
		}
		r.tokens[nonce] = a.Token
	}
	require.NotEmpty(t, r.tokens)
	return r
}

func TestProcessesJoinLeaveTransferAndRestore(t *testing.T) {
	ps := startProcesses(t, 3, DefaultLog)
	id := lease.NewSessionID()
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
	fresh := newProcess(t, "p9", DefaultLog)
	fresh.start()
	_, err = fresh.call(call{Op: "join", Control: ps.leader().control})
	require.NoError(t, err)
	ps.all = append(slices.DeleteFunc(ps.all, func(p *process) bool { return p == old }), fresh)
	ps.agree()

	leaving := ps.leader()
	require.NoError(t, leaving.cmd.Process.Signal(syscall.SIGTERM))
	<-leaving.exited
	require.Zero(t, leaving.cmd.ProcessState.ExitCode(), "it hands over and ends")
	require.NotEqual(t, leaving.spec.ID, ps.leader().spec.ID)
	leaving.start()

	restored, err := ps.leader().call(call{Op: "restore", Data: saved.Data})
	require.NoError(t, err)
	require.GreaterOrEqual(t, restored.Token, second.Token+fencing.FloorStep)
	third, err := ps.ask(call{Op: "acquire", Session: id, Nonce: 3, Resource: "b"})
	require.NoError(t, err, "the snapshot knows nothing of the second grant")
	require.Greater(t, third.Token, restored.Token)
	ps.agree()
}
