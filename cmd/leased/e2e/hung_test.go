//go:build unix

package e2e

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// hungClients is the number of clients: some of them use the member that hangs.
const hungClients = 6

// A member that hangs, first a follower and then the leader, is no error for any client, in
// either mode: calls, waiters and observers continue with the other members. The limits are
// far above what a call takes, for the sake of slow machines; the tests of internal/remote check
// the time.
func TestHungMember(t *testing.T) {
	t.Parallel()
	c := startTrioWithRedis(t, "5m")
	must(t, c.env(), leased, "policy", "set", "report/*", "--mode=efficiency")
	for _, api := range c.apis {
		take(t, api, "report/warm") // waits until each member has applied the policy
	}
	var clients []*lease.Client
	for i := range hungClients {
		var opened *lease.Client
		eventually(t, func() bool {
			var err error
			opened, err = client.Dial(t.Context(), c.apis, client.WithoutRedis(),
				client.WithLeaseOptions(lease.WithName(fmt.Sprint("client-", i))))
			return err == nil
		}, "for a client")
		t.Cleanup(func() { _ = opened.Close(context.Background()) })
		clients = append(clients, opened)
	}
	for i, role := range []string{"follower", "another follower", "leader"} {
		for _, prefix := range []string{"report", "job"} {
			t.Run(role+"/"+prefix, func(t *testing.T) {
				h := prepareHung(t, clients, prefix)
				victim := (c.leader() + i + 1) % 3
				began := time.Now()
				c.servers[victim].signal(syscall.SIGSTOP)
				defer c.servers[victim].signal(syscall.SIGCONT) // also if the check fails
				h.check()
				t.Logf("all calls ended after %v", time.Since(began).Round(time.Millisecond))
				c.servers[victim].signal(syscall.SIGCONT)
				healthy(t, c.apis...)
			})
		}
	}
}

// hung is what clients do while a member hangs.
type hung struct {
	t       *testing.T
	ctx     context.Context
	clients []*lease.Client
	prefix  string
	held    *lease.Lease   // by the first client
	leases  []*lease.Lease // one of each client, to be released
	waiters chan error
	leaders chan lease.Leader
}

// prepareHung takes leases, queues waiters and starts an observer, while all members run.
func prepareHung(t *testing.T, clients []*lease.Client, prefix string) *hung {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	h := &hung{t: t, ctx: ctx, clients: clients, prefix: prefix, waiters: make(chan error, len(clients)),
		leaders: make(chan lease.Leader, 100)}
	h.held = h.acquire(clients[0], "queue")
	for i, client := range clients {
		h.leases = append(h.leases, h.acquire(client, fmt.Sprint("released-", i)))
		go func() {
			l, err := client.Acquire(ctx, h.name("queue"))
			if err == nil {
				h.release(l)
			}
			h.waiters <- err
		}()
		go func() { _ = client.Observe(ctx, h.name("queue"), func(l lease.Leader) { h.leaders <- l }) }()
	}
	for range clients {
		require.Equal(t, h.held.Token(), h.next().Token)
	}
	return h
}

func (h *hung) name(lock string) fencing.Resource { return fencing.Resource(h.prefix + "/" + lock) }

func (h *hung) acquire(client *lease.Client, lock string) *lease.Lease {
	h.t.Helper()
	l, err := client.Acquire(h.ctx, h.name(lock), lease.WithTTL(time.Minute))
	require.NoError(h.t, err)
	return l
}

// next returns what an observer sees next.
func (h *hung) next() lease.Leader {
	h.t.Helper()
	select {
	case l := <-h.leaders:
		return l
	case <-h.ctx.Done():
		require.Fail(h.t, "no observer has seen a change")
		return lease.Leader{}
	}
}

// check makes all kinds of calls at each client. None of them may fail.
func (h *hung) check() {
	h.t.Helper()
	var calls sync.WaitGroup
	for i, client := range h.clients {
		calls.Go(func() { h.try(client, fmt.Sprint("try-", i)) })
		calls.Go(func() { h.tryBriefly(client, fmt.Sprint("brief-", i)) })
		calls.Go(func() {
			h.release(h.leases[i])
			h.try(client, fmt.Sprint("released-", i))
		})
	}
	calls.Wait()
	h.release(h.held)
	for range h.clients {
		select {
		case err := <-h.waiters:
			require.NoError(h.t, err)
		case <-h.ctx.Done():
			require.Fail(h.t, "a waiter was not granted the lock")
		}
	}
	for free := 0; free < len(h.clients); { // each observer reports it at the end
		if h.next().Token == fencing.None {
			free++
		}
	}
}

// try acquires a lock that nobody holds, or that its holder has just released, without a limit of its own.
func (h *hung) try(client *lease.Client, lock string) {
	l, err := client.Acquire(h.ctx, h.name(lock))
	if err != nil {
		h.t.Errorf("acquire %s: %v", lock, err)
		return
	}
	h.release(l)
}

// release releases a lease. If a busy machine needs longer than Release waits, the client goes on in the background.
func (h *hung) release(l *lease.Lease) {
	if err := l.Release(h.ctx); err != nil {
		h.t.Logf("release %s: %v", l.Resource(), err)
	}
}

// tryBriefly acquires a free lock by calls of one second.
func (h *hung) tryBriefly(client *lease.Client, lock string) {
	for {
		ctx, cancel := context.WithTimeout(h.ctx, time.Second)
		l, err := client.Acquire(ctx, h.name(lock))
		cancel()
		if err == nil {
			h.release(l)
			return
		}
		if h.ctx.Err() != nil {
			h.t.Errorf("try %s: %v", lock, err)
			return
		}
	}
}
