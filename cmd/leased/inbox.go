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

// inbox receives the signals for the command, even before the command starts.
type inbox struct {
	signals chan os.Signal

	mu    sync.Mutex
	kept  []os.Signal // received while waiting, for the command
	ended error       // the signal that ended the wait
	stop  chan struct{}
	done  sync.WaitGroup
}

// ownSignals concern this process: its children, its terminal, its runtime.
var ownSignals = []os.Signal{syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPIPE, syscall.SIGTTIN, syscall.SIGTTOU,
	syscall.SIGPROF}

// endSignals end the wait for the lock.
var endSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

func openInbox() *inbox {
	b := &inbox{signals: make(chan os.Signal, 64), stop: make(chan struct{})}
	var all []os.Signal
	for number := syscall.Signal(1); number < 32; number++ {
		if s := os.Signal(number); !slices.Contains(ownSignals, s) && number != syscall.SIGKILL && number != syscall.SIGSTOP {
			all = append(all, s)
		}
	}
	signal.Notify(b.signals, all...)
	return b
}

// waiting returns a context for the time before the command. The end signals
// cancel it.
func (b *inbox) waiting(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	b.done.Go(func() {
		for {
			select {
			case s := <-b.signals:
				b.mu.Lock()
				if slices.Contains(endSignals, s) {
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

// deliver ends the wait. It returns the signals for the command, starting with
// those received while waiting, or the reason not to start the command.
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
