package raftstore

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/logstore"
)

func TestDiskErrorsEndTheProcess(t *testing.T) {
	tracer, err := exec.LookPath("strace")
	require.NoError(t, err, "install strace")
	for _, kind := range kinds {
		for _, fault := range []struct{ calls, code string }{
			{"fsync,fdatasync", "EIO"}, {"fsync,fdatasync", "ENOSPC"}, {"pwrite64,fallocate,ftruncate", "ENOSPC"},
		} {
			t.Run(fmt.Sprintf("%s %s of %s", kind, fault.code, fault.calls), func(t *testing.T) {
				t.Parallel()
				p := newProcess(t, "p0", kind)
				p.start(tracer, "-f", "-qq", "-o", "/dev/null", "-e", "trace="+fault.calls, "-e",
					"inject="+fault.calls+":error="+fault.code+":when=60+")
				ps := &processes{t: t, all: []*process{p}}
				acknowledged := newReceipts(t, ps)
				acknowledged.takeUntilDeath(t, p)
				p.start()
				acknowledged.check(t, ps)
			})
		}
	}
}

// A full disk: the data folder of the node is a small file system.
func TestFullDiskEndsTheProcess(t *testing.T) {
	for kind, size := range map[logstore.Kind]string{
		logstore.Bolt: "2m",
		logstore.WAL:  "66m", // a segment takes 64, used or not
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, "p0", kind)
			require.NoError(t, syscall.Mount("tmpfs", p.spec.Dir, "tmpfs", 0, "size="+size),
				"run as root, with the right to mount")
			t.Cleanup(func() {
				p.kill()
				require.NoError(t, syscall.Unmount(p.spec.Dir, syscall.MNT_DETACH))
			})
			p.start()
			ps := &processes{t: t, all: []*process{p}}
			acknowledged := newReceipts(t, ps)
			for range 20 {
				require.True(t, acknowledged.take(t, p))
			}
			ballast := filepath.Join(p.spec.Dir, "ballast")
			fill(t, ballast)
			if kind == logstore.WAL { // the log has preallocated its space, but a snapshot has not
				_, err := p.call(call{Op: "save"})
				require.Error(t, err)
			}
			acknowledged.takeUntilDeath(t, p)

			require.NoError(t, os.Remove(ballast))
			p.start()
			acknowledged.check(t, ps)
			require.True(t, acknowledged.take(t, p), "the node continues")
		})
	}
}

// fill uses up the space of a file system.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
}

// receipts are the grants that a client received.
type receipts struct {
	session engine.SessionID
	next    engine.Nonce
	tokens  map[engine.Nonce]fencing.Token
}

// newReceipts creates a cluster of one process, and a session.
func newReceipts(t *testing.T, ps *processes) *receipts {
	t.Helper()
	p := ps.all[0]
	_, err := p.call(call{Op: "bootstrap"})
	require.NoError(t, err)
	ps.leader()
	r := &receipts{session: engine.NewSessionID(), tokens: map[engine.Nonce]fencing.Token{}}
	_, err = p.call(call{Op: "open", Session: r.session})
	require.NoError(t, err)
	return r
}

func (r *receipts) acquire(nonce engine.Nonce) call {
	return call{Op: "acquire", Session: r.session, Nonce: nonce, Resource: fencing.Resource(fmt.Sprint("lock ", nonce))}
}

// take acquires another lock and reports whether it was granted.
func (r *receipts) take(t *testing.T, p *process) bool {
	t.Helper()
	r.next++
	a, err := p.call(r.acquire(r.next))
	if err != nil {
		require.True(t, a.Unknown || a.Refused, "a failing disk is never a refusal: %v", err)
		return false
	}
	r.tokens[r.next] = a.Token
	return true
}

// takeUntilDeath acquires locks until the node has ended itself.
func (r *receipts) takeUntilDeath(t *testing.T, p *process) {
	t.Helper()
	for r.take(t, p) {
	}
	firstOf(t, p.exited, "the process ends")
	require.Equal(t, 3, p.cmd.ProcessState.ExitCode(), "the node ends itself")
	require.NotEmpty(t, r.tokens)
}

// check repeats all acknowledged attempts.
func (r *receipts) check(t *testing.T, ps *processes) {
	t.Helper()
	ps.leader()
	for nonce, token := range r.tokens {
		a, err := ps.ask(r.acquire(nonce))
		require.NoError(t, err)
		require.Equal(t, token, a.Token, "attempt %d", nonce)
	}
}
