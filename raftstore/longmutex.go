package raftstore

import "sync"

// longMutex is a lock that is held while waiting for the log or the engine. It is a
// channel, not a mutex: in a bubble of testing/synctest time stands still while
// anyone waits for a mutex, so that what its holder waits for never comes. The
// zero value is free.
type longMutex struct {
	once sync.Once
	held chan struct{}
}

// Lock waits until the longMutex is free and takes it.
func (b *longMutex) Lock() {
	b.once.Do(func() { b.held = make(chan struct{}, 1) })
	b.held <- struct{}{}
}

// Unlock frees it.
func (b *longMutex) Unlock() { <-b.held }
