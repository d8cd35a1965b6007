// Package hub notifies the callers of one replica of changes of its machine: waiters of a
// grant, holders of a loss, and watchers of any change of a lock.
//
// It promises nothing about other replicas. A replica that lags reports late, so a
// waiter also checks the machine before it waits, and a leader that loses its leadership
// redirects its waiters to the next leader.
//
// The nouns, in reading order: [Hub], with [Wait] and [Watcher] (hub.go); [Attempt], for which
// callers wait, and how its outcome reaches them (waiters.go); [Listener], which receives the
// losses of a session (listeners.go).
package hub
