// Package hub notifies the callers of one replica of changes of its machine: waiters of a
// grant, holders of a loss, and watchers of any change of a lock.
//
// It promises nothing about other replicas. A replica that lags reports late, so a
// waiter also checks the machine before it waits, and a leader that loses its leadership
// redirects its waiters to the next leader.
//
// The nouns, in reading order: [Attempt] and [Waiters], which have no lock and no
// goroutine, so that the simulator uses them too (waiters.go); [Listener],
// which receives the losses of a session (listeners.go); [Hub], which adds the lock
// and the watchers (hub.go).
package hub
