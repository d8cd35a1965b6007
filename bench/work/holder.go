package work

import (
	"context"
	"fmt"

	"github.com/leased-project/leased/internal/load"
)

const (
	// takers is how many leases a holder acquires at once. With thousands of new sessions at once, the machine would not
	// send heartbeats in time, and clients would leave their connections.
	takers = 128
	// maxSessions bounds the sessions of a holder, each of which has two connections: a process may have only some ten
	// thousand file descriptors.
	maxSessions = 5000
)

// hold starts child processes that hold leases, shared evenly by sessions, until the target stops, and returns when all
// are held. They are processes of their own, so that the garbage collection of their memory does not slow the workers
// that are measured.
func (t *target) hold(sessions, leases int) error {
	for begun := 0; begun < sessions; begun += maxSessions {
		n := min(maxSessions, sessions-begun)
		work := load.Work{Kind: load.Hold, Clients: n, Leases: leases / sessions * n}
		work.Workers = max(n, min(takers, work.Leases))
		c, err := t.startChild(context.Background(), childSettings{Work: work, Prefix: fmt.Sprintf("held/%d/", begun)})
		if err != nil {
			return err
		}
		t.holders = append(t.holders, c)
		if err := c.awaitReady(); err != nil {
			return fmt.Errorf("hold %d leases in %d sessions: %w", leases, sessions, err)
		}
	}
	return nil
}

// stop ends the servers, and at once the holders that used them.
func (t *target) stop() {
	for _, h := range t.holders {
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
	}
	t.cluster.Stop()
}
