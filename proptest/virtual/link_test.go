package virtual

import (
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// linkFaults are the faults of the connections of all processes to one server.
type linkFaults struct {
	mu       sync.Mutex
	random   *rand.Rand
	released chan struct{} // closed when held data continues; nil if nothing is held
	delay    time.Duration // maximum, of requests
	lose     bool          // drop replies
}

// hold delays all data in flight until the returned function is called: a partitioned
// network may deliver late. It reports whether data was flowing before.
func (w *linkFaults) hold() (release func(), held bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.released != nil {
		return func() {}, false
	}
	released := make(chan struct{})
	w.released = released
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.released = nil
		close(released)
	}, true
}

// set delays requests or drops replies. It reports whether that affects flowing data.
func (w *linkFaults) set(delay time.Duration, lose bool) (worse bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	worse = w.released == nil && (delay > w.delay || lose && !w.lose)
	w.delay, w.lose = delay, lose
	return worse
}

// pass returns when data may continue. It reports whether the data is lost.
func (w *linkFaults) pass(reply bool) (lost bool) {
	for {
		w.mu.Lock()
		released := w.released
		lost = reply && w.lose
		w.mu.Unlock()
		if released == nil {
			return lost
		}
		<-released
	}
}

// due returns the arrival time of data that is sent now.
func (w *linkFaults) due(reply bool) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	delay := time.Duration(w.random.Int64N(int64(2 * time.Millisecond)))
	if !reply {
		delay += time.Duration(w.random.Int64N(int64(w.delay) + 1))
	}
	return time.Now().Add(delay)
}

// connect connects a process to a server through linkFaults. Both ends are net.Conns with
// deadlines. Data that a client sent arrives even if the client has closed since.
func connect(p *process, w *linkFaults, server net.Conn) net.Conn {
	client, far := net.Pipe()
	go forward(p, w, far, server, false)
	go forward(p, w, server, far, true)
	return client
}

// packet is data in flight.
type packet struct {
	data []byte
	due  time.Time
}

// forward forwards data in one direction, in order, until the sender closes.
func forward(p *process, w *linkFaults, from, to net.Conn, reply bool) {
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
				p.step() // a paused process sends nothing
			}
			queue <- packet{data[:n], w.due(reply)}
		}
	}()
	defer func() {
		to.Close()
		for range queue { // until the reader has ended
		}
	}()
	for one := range queue {
		<-time.After(time.Until(one.due))
		if w.pass(reply) {
			continue // the client gives up the connection
		}
		if reply {
			p.step()
		}
		if _, err := to.Write(one.data); err != nil {
			from.Close()
		}
	}
}
