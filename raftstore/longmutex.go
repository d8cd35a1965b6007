package raftstore

import "sync"

// longMutex is a mutex that is held while waiting for the log or the Raft library. It is a
// channel, because in a synctest bubble time does not advance while a goroutine waits for
// a sync.Mutex. The zero value is unlocked.
type longMutex struct {
	once sync.Once
	held chan struct{}
}

func (b *longMutex) Lock() {
	b.once.Do(func() { b.held = make(chan struct{}, 1) })
	b.held <- struct{}{}
}

func (b *longMutex) Unlock() { <-b.held }
