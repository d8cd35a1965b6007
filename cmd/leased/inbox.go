//go:build unix

package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// inbox takes the signals that are meant for the command, also before there is
// one.
type inbox struct {
	signals chan os.Signal

	mu    sync.Mutex
	kept  []os.Signal // came while waiting, for the command
	ended error       // the signal that ended the waiting
	stop  chan struct{}
	done  sync.WaitGroup
}

// notForTheCommand are about this process: its children, its terminal, its
// runtime.
var notForTheCommand = []os.Signal{syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPIPE, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGPROF}

// endings are what ends the waiting.
var endings = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

func openInbox() *inbox {
	b := &inbox{signals: make(chan os.Signal, 64), stop: make(chan struct{})}
	var all []os.Signal
	for number := syscall.Signal(1); number < 32; number++ {
		if s := os.Signal(number); !slices.Contains(notForTheCommand, s) && number != syscall.SIGKILL && number != syscall.SIGSTOP {
			all = append(all, s)
		}
	}
	signal.Notify(b.signals, all...)
	return b
}

// waiting is a context for the time before the command.
func (b *inbox) waiting(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	b.done.Go(func() {
		for {
			select {
			case s := <-b.signals:
				b.mu.Lock()
				if slices.Contains(endings, s) {
					b.ended = interrupted(s)
					cancel(b.ended)
				} else {
					b.kept = append(b.kept, s)
				}
				b.mu.Unlock()
			case <-b.stop:
				cancel(nil)
				return
			}
		}
	})
	return ctx
}

// deliver ends the waiting. It returns the signals for the command, those that
// came while waiting first, or why there shall be no command.
func (b *inbox) deliver() (<-chan os.Signal, error) {
	close(b.stop)
	b.done.Wait()
	out := make(chan os.Signal, cap(b.signals)+len(b.kept))
	for _, s := range b.kept {
		out <- s
	}
	go func() {
		for s := range b.signals {
			out <- s
		}
	}()
	return out, b.ended
}

func (b *inbox) close() { signal.Stop(b.signals) }
