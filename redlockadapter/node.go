package redlockadapter

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// node is one Redis master of the fleet.
type node struct {
	*connection
	index     int
	addr      string
	options   *redis.Options
	namespace string // begins the names of all keys
	timeout   time.Duration
	clock     engine.Clock
	lives     *lives
	poke      func() // the keeper should look at the nodes
}

func newNode(b *Backend, index int, options *redis.Options) *node {
	n := &node{index: index, addr: options.Addr, options: b.config.options(options), namespace: keyPrefix(b.config.Namespace),
		timeout: b.config.NodeTimeout, clock: b.clock, lives: b.lives, poke: b.poke}
	n.connection = newConnection(n)
	return n
}

// call runs a script and waits for the reply.
func (n *node) call(ctx context.Context, s *script, keys []string, args ...string) (reply, error) {
	return n.do(ctx, newRequest(s, keys, args...))
}

func (n *node) do(ctx context.Context, r *request) (reply, error) {
	answered := make(chan reply, 1)
	r.answer = func(_ int, got reply) { answered <- got }
	n.push(r)
	select {
	case got := <-answered:
		if got.err != nil {
			return got, fmt.Errorf("%s: %w", n.addr, got.err)
		}
		return got, nil
	case <-ctx.Done():
		return reply{}, fmt.Errorf("%s: %w", n.addr, context.Cause(ctx))
	}
}

func infoRequest() *request { return &request{plain: "*1\r\n$4\r\ninfo\r\n"} }

// verify ends the connection if its server is not what it was when the
// connection was made: it may have been a replica in between, with other data.
func (n *node) verify(ctx context.Context) error {
	n.mu.Lock()
	k := n.link
	n.mu.Unlock()
	if k == nil {
		return nil // the next request examines the server anyway
	}
	got, err := n.do(ctx, infoRequest())
	if err != nil {
		return err
	}
	f := parseInfo(got.word(0))
	if err = f.check(n.addr); err == nil && k.prefix == n.namespace+f.life()+":" {
		return nil
	}
	if err == nil {
		err = setupError(n.addr, "its data is not what it was: it was a replica in between")
	}
	n.mu.Lock()
	if n.link == k {
		_ = k.conn.Close() // the reader sees it
	}
	n.mu.Unlock()
	return err
}

// report asks the node for its state.
func (n *node) report(ctx context.Context, now func() time.Time) (NodeStatus, error) {
	status := NodeStatus{Addr: n.addr}
	before := now()
	got, err := n.call(ctx, reportScript, []string{nodeKey, lifeKey}, n.namespace)
	after := now()
	if err != nil {
		return status, err
	}
	if len(got.words) < 9 {
		return status, fmt.Errorf("%s: report has %d fields: %w", n.addr, len(got.words), errProtocol)
	}
	status.Report.Reached = true
	w := got.words
	if status.Report.Live, err = parseState(w[1], w[2], w[3], w[4], w[5], w[6]); err != nil {
		return status, setupError(n.addr, "its state: %v", err)
	}
	if len(w) >= 14 {
		if status.Report.Former, err = parseState(w[9], w[10], "", w[11], w[12], w[13]); err != nil {
			return status, setupError(n.addr, "the state of its former life: %v", err)
		}
	}
	status.Joining = w[7]
	age, _ := strconv.ParseInt(w[8], 10, 64)
	status.waited = time.Duration(age) * time.Millisecond
	millis, _ := strconv.ParseInt(w[0], 10, 64)
	clock := time.UnixMilli(millis)
	switch { // off only by what the time of the exchange cannot explain
	case clock.Before(before.Add(-time.Millisecond)):
		status.Skew = clock.Sub(before)
	case clock.After(after):
		status.Skew = clock.Sub(after)
	}
	n.mu.Lock()
	if n.link != nil {
		status.Identity = n.link.prefix[len(n.namespace) : len(n.link.prefix)-1]
	}
	n.mu.Unlock()
	return status, nil
}

// parseState reads the fields of a node's state; nil if there is none.
func parseState(version, fleet, member, max, floor, ceiling string) (*recovery.State, error) {
	if version == "" {
		return nil, nil //nolint:nilnil // nil is an empty node
	}
	s := &recovery.State{Fleet: fleet, Member: member}
	var err error
	if s.Version, err = strconv.ParseUint(version, 10, 53); err != nil {
		return nil, err
	}
	for _, field := range []struct {
		to   *fencing.Token
		text string
	}{{&s.Max, max}, {&s.Floor, floor}, {&s.Ceiling, ceiling}} {
		if *field.to, err = fencing.ParseToken(field.text); err != nil {
			return nil, err
		}
	}
	return s, nil
}
