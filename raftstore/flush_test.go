package raftstore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/machine"
)

// flushedCaller is a Caller that sends its outcome when it is flushed, like a stream.
type flushedCaller struct {
	err  error
	done bool
	sent chan error
}

func (c *flushedCaller) Done(_ machine.Result, err error) { c.err, c.done = err, true }

func (c *flushedCaller) Flush() {
	if c.done {
		c.sent <- c.err
	}
}

// Operations that are refused because the leader has changed since they were started are
// flushed: otherwise their answers stay in the stream until another one is sent.
func TestRefusedOperationsAreFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startMemory(t, 1)
		s := openSession(t, c.backend(), time.Minute).(*Session)
		n := c.leader()
		acquire, release := &flushedCaller{sent: make(chan error, 2)}, &flushedCaller{sent: make(chan error, 2)}
		synctest.Wait() // the committer is idle, so it proposes nothing before it is woken
		require.NoError(t, s.Begin(testContext(t), lockRequest(1, "a"), acquire))
		require.NoError(t, s.BeginRelease(7, release))
		n.stepDown("a test")
		n.committer.wakeUp()
		synctest.Wait()
		for _, caller := range []*flushedCaller{acquire, release} {
			select {
			case err := <-caller.sent:
				require.ErrorIs(t, err, engine.ErrUnavailable)
			default:
				require.Fail(t, "the refusal was not flushed")
			}
		}
	})
}
