package remote

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/secret"
)

// minStay is how long a member that cannot serve is kept at least, so that callers
// who all fail do not connect anew each time.
const minStay = time.Second

// uplink is the link in use, and where to connect when it has ended.
type uplink struct {
	settings   *settings
	connecting chan struct{} // held while the link is being made

	mu     sync.Mutex
	closed bool
	link   *link
	leader string         // where to connect next, empty for the next endpoint
	next   int            // of endpoints
	since  engine.Instant // when link was made
}

func newUplink(s *settings, next int) *uplink {
	return &uplink{settings: s, connecting: make(chan struct{}, 1), next: next}
}

// close ends the link for good.
func (u *uplink) close() {
	u.mu.Lock()
	u.closed = true
	l := u.link
	u.mu.Unlock()
	if l != nil {
		l.close(errClosed)
	}
}

// connect is the link in use, or a new one.
func (u *uplink) connect(ctx context.Context) (*link, error) {
	if l, err := u.current(); l != nil || err != nil {
		return l, err
	}
	select {
	case u.connecting <- struct{}{}:
		defer func() { <-u.connecting }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if l, err := u.current(); l != nil || err != nil {
		return l, err
	}
	u.mu.Lock()
	address := u.leader
	if u.leader = ""; address == "" {
		address = u.settings.endpoints[u.next%len(u.settings.endpoints)]
		u.next++
	}
	u.mu.Unlock()
	if err := secret.CheckAddress(address, u.settings.tls, u.settings.secret); err != nil { // a member has named it
		return nil, err
	}
	l, err := openLink(ctx, u, address)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", engine.ErrUnavailable, address, err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		l.close(errClosed)
		return nil, errClosed
	}
	u.link, u.since = l, u.settings.clock.Now()
	return l, nil
}

// current is the link in use, nil if there is none.
func (u *uplink) current() (*link, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.closed:
		return nil, errClosed
	case u.link == nil || u.link.isDown():
		return nil, nil
	}
	return u.link, nil
}

// retire ends a link. leader is where to connect next, empty if not known.
func (u *uplink) retire(l *link, leader string, why error) {
	u.mu.Lock()
	if u.link == l {
		u.link = nil
		u.leader = leader
	}
	u.mu.Unlock()
	l.close(why)
}

// leave takes a link out of use whose member cannot serve, and reports whether
// there is another one to ask. What is under way on it goes on.
func (u *uplink) leave(l *link) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.link != l {
		return true // somebody has left it before
	}
	if len(u.settings.endpoints) == 1 || u.settings.clock.Now().Since(u.since) < minStay {
		return false
	}
	u.link = nil
	l.drain()
	return true
}
