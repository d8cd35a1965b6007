package raftstore

// longMutex is a mutex that is held while waiting for the log or the Raft library. It is a
// channel with room for one, because in a synctest bubble time does not advance while a
// goroutine waits for a sync.Mutex.
type longMutex chan struct{}

func (m longMutex) Lock()   { m <- struct{}{} }
func (m longMutex) Unlock() { <-m }
