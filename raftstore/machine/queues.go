package machine

// queueLengths has, at index i, the number of locks whose queue has more than i waiters.
// Its length is therefore the length of the longest queue, and both changes take
// constant time.
type queueLengths []int

// grown records that the queue of a lock has grown to n waiters.
func (q *queueLengths) grown(n int) {
	if n > len(*q) {
		*q = append(*q, 0)
	}
	(*q)[n-1]++
}

// shrunk records that the queue of a lock had n waiters, and has one less now.
func (q *queueLengths) shrunk(n int) {
	(*q)[n-1]--
	if (*q)[n-1] == 0 { // no longer queue exists either
		*q = (*q)[:n-1]
	}
}

// enqueue appends a waiter to the queues of its locks.
func (m *Machine) enqueue(r *request) {
	for _, name := range r.resources {
		l := m.lock(name)
		l.queue = append(l.queue, r)
		m.queues.grown(len(l.queue))
	}
}

// leaveQueue removes a waiter from the queue of one of its locks. It does nothing for a
// holder.
func (m *Machine) leaveQueue(l *lock, r *request) {
	before := len(l.queue)
	if l.queue = remove(l.queue, r, byOrder); len(l.queue) < before {
		m.queues.shrunk(before)
	}
}

// LongestQueue returns the number of waiters of the lock that has most.
func (m *Machine) LongestQueue() int { return len(m.queues) }
