//go:build unix

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
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
				c.servers[victim].stop()
				defer c.servers[victim].signal(syscall.SIGCONT) // also if the check fails
				h.check()
				t.Logf("all calls ended after %v", time.Since(began).Round(time.Millisecond))
				c.servers[victim].signal(syscall.SIGCONT)
				healthy(t, c.apis...)
			})
		}
	}
}

// While no member answers, the Redis nodes do not answer for a moment. A client that uses them directly keeps its
// lease, and is granted others.
func TestRedisBlipWithoutMembers(t *testing.T) {
	t.Parallel()
	nodes, flags := startRedis(t, 3, "1m")
	c := startTrioWith(t, flags)
	must(t, c.env(), leased, "policy", "set", "report/*", "--mode=efficiency")
	user, err := client.Dial(t.Context(), c.apis)
	require.NoError(t, err)
	t.Cleanup(func() { _ = user.Close(context.Background()) })
	const ttl = 6 * time.Second
	held, err := user.Acquire(t.Context(), "report/held", lease.WithTTL(ttl))
	require.NoError(t, err)
	for _, member := range c.servers {
		member.stop()
		defer member.signal(syscall.SIGCONT)
	}
	nodes[0].Pause()
	nodes[1].Pause()
	first := make(chan error, 1)
	go func() { // its failure sends the client to the members
		l, err := user.TryAcquire(t.Context(), "report/first")
		if err == nil {
			_ = l.Release(t.Context()) // if it fails, the client repeats it in the background
		}
		first <- err
	}()
	<-time.After(700 * time.Millisecond)
	nodes[0].Resume()
	nodes[1].Resume()
	for began := time.Now(); time.Since(began) < 3*ttl; <-time.After(100 * time.Millisecond) {
		l, err := user.TryAcquire(t.Context(), "report/other")
		if err == nil {
			err = l.Release(t.Context())
		}
		if err != nil {
			t.Logf("after %v: %v", time.Since(began).Round(time.Millisecond), err)
		}
		require.NoError(t, held.Err())
	}
	require.NoError(t, <-first)
	eventually(t, func() bool { // a release of the loop may be repeated in the background
		var l *lease.Lease
		if l, err = user.TryAcquire(t.Context(), "report/other"); err == nil {
			err = l.Release(t.Context())
		}
		return err == nil
	}, "for a lease; the last error was %v", lazy(func() string { return fmt.Sprint(err) }))
}

// HTTP calls that a follower has forwarded to a leader that hangs are answered by the next leader, or with an error if
// they cannot be repeated. A watch ends with an error.
func TestHungLeaderOverHTTP(t *testing.T) {
	t.Parallel()
	c := startTrio(t)
	leader := c.leader()
	url := "http://" + c.apis[(leader+1)%3] + "/v1/"
	watch := postTo(t, url+"watch", `{"resource": "job/watched"}`)
	lines := bufio.NewScanner(watch.Body)
	require.True(t, lines.Scan(), "the first event")
	c.servers[leader].stop()
	defer c.servers[leader].signal(syscall.SIGCONT)
	var calls sync.WaitGroup
	ctx := testserver.Context(t)
	for call, body := range map[string]string{"inspect": `{"resource": "job/1"}`, "list": `{}`,
		"acquire?1": `{"resource": "job/1", "attempt": "0123456789abcdef"}`,
		"acquire?2": `{"resource": "job/2", "attempt": "fedcba9876543210", "wait": "20s"}`,
		"acquire?3": `{"resource": "job/3"}`} {
		calls.Go(func() {
			response := postTo(t, url+call, body)
			for response.StatusCode == http.StatusServiceUnavailable && ctx.Err() == nil { // a late election
				<-time.After(pollInterval)
				response = postTo(t, url+call, body)
			}
			if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK &&
				!(call == "acquire?3" && strings.Contains(string(text), `"uncertain"`)) {
				t.Errorf("%s: %s: %s, %v", call, response.Status, text, err)
			}
		})
	}
	calls.Wait()
	last := ""
	for lines.Scan() {
		last = lines.Text()
	}
	require.NoError(t, lines.Err())
	require.Contains(t, last, "the member no longer leads")
}

// postTo makes a call of the HTTP API, for a minute at most.
func postTo(t *testing.T, url, body string) *http.Response {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err == nil {
		request.Header.Set("Content-Type", "application/json")
		response, failed := http.DefaultClient.Do(request)
		if err = failed; err == nil {
			t.Cleanup(func() { _ = response.Body.Close() })
			return response
		}
	}
	t.Errorf("%s: %v", url, err)
	return &http.Response{Body: http.NoBody}
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
