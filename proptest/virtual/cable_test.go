package virtual

import (
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// weather is what happens to the bytes between all processes and one server.
type weather struct {
	mu    sync.Mutex
	dice  *rand.Rand
	calm  chan struct{} // closed when what is held goes on; nil if nothing is held
	delay time.Duration // of requests, at most
	lose  bool          // replies
}

// hold keeps everything that is under way, until the returned function is
// called: a network that is cut delivers late what it has taken. It reports
// whether anything went through before.
func (w *weather) hold() (release func(), held bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calm != nil {
		return func() {}, false
	}
	calm := make(chan struct{})
	w.calm = calm
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calm = nil
		close(calm)
	}, true
}

// set makes requests late, or loses replies. It reports whether that is worse
// than before, for what goes through at all.
func (w *weather) set(delay time.Duration, lose bool) (worse bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	worse = w.calm == nil && (delay > w.delay || lose && !w.lose)
	w.delay, w.lose = delay, lose
	return worse
}

// pass returns when bytes may go on. It reports whether they are lost.
func (w *weather) pass(reply bool) (lost bool) {
	for {
		w.mu.Lock()
		calm := w.calm
		lost = reply && w.lose
		w.mu.Unlock()
		if calm == nil {
			return lost
		}
		<-calm
	}
}

// due is when bytes that are sent now arrive.
func (w *weather) due(reply bool) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	delay := time.Duration(w.dice.Int64N(int64(2 * time.Millisecond)))
	if !reply {
		delay += time.Duration(w.dice.Int64N(int64(w.delay) + 1))
	}
	return time.Now().Add(delay)
}

// cable connects a process with a server, and takes its bytes through the
// weather. It is a real net.Conn on both ends, with deadlines. What a client has
// sent arrives also when the client has hung up since.
func cable(p *process, w *weather, server net.Conn) net.Conn {
	client, far := net.Pipe()
	go carry(p, w, far, server, false)
	go carry(p, w, server, far, true)
	return client
}

// packet is bytes under way.
type packet struct {
	data []byte
	due  time.Time
}

// carry takes bytes one way, in their order, until the sender hangs up.
func carry(p *process, w *weather, from, to net.Conn, reply bool) {
	queue := make(chan packet, 1024)
	go func() {
		defer close(queue)
		for {
			data := make([]byte, 1<<14)
			n, err := from.Read(data)
			if err != nil {
				return
			}
			if !reply {
				p.step() // what a paused process has written does not leave it
			}
			queue <- packet{data[:n], w.due(reply)}
		}
	}()
	defer func() {
		to.Close()
		for range queue { // until the reader has ended too
		}
	}()
	for one := range queue {
		<-time.After(time.Until(one.due))
		if w.pass(reply) {
			continue // the connection is of no more use, and its client gives it up
		}
		if reply {
			p.step()
		}
		if _, err := to.Write(one.data); err != nil {
			from.Close()
		}
	}
}
