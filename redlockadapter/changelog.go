package redlockadapter

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"

	"github.com/leased-project/leased/lease/engine"
)

// failedLooks is the number of failed looks after which a node counts as unreachable: one
// slow answer is not worth a log line.
const failedLooks = 2

// nodeView is how this process last saw a node.
type nodeView uint8

const (
	neverSeen nodeView = iota
	reached
	unreachable
	refused // its setup does not allow it to vote
)

// nodeLog logs when this process loses or regains a node, and when a node without a
// service loses its state. Each change has one line. The leader of a service logs which
// nodes vote.
type nodeLog struct {
	logger *slog.Logger

	mu    sync.Mutex
	nodes []loggedNode
}

// loggedNode is what was logged about a node.
type loggedNode struct {
	view  nodeView
	fails int   // failed looks in a row
	empty bool  // standalone: the node has no state
	why   error // standalone: why the node is not recovered yet
}

// saw records whether a node answered.
func (l *nodeLog) saw(node int, address string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := &l.nodes[node]
	before := n.view
	if err == nil {
		n.view, n.fails = reached, 0
		if before == unreachable || before == refused {
			l.logger.Info("Redis node is reachable again", "node", address)
		}
		return
	}
	n.fails++
	switch {
	case errors.Is(err, ErrNodeSetup) && before != refused:
		n.view = refused
		l.logger.Warn("Redis node is refused", "node", address, "error", err)
	case !errors.Is(err, ErrNodeSetup) && before != unreachable && n.fails >= failedLooks:
		n.view = unreachable
		l.logger.Warn("Redis node is unreachable", "node", address, "error", err)
	}
}

// lost records that a node of a fleet without a service has no state.
func (l *nodeLog) lost(node int, address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.nodes[node].empty {
		l.nodes[node].empty = true
		l.logger.Warn("Redis node is empty and does not vote", "node", address)
	}
}

// waits records why a node that lost its state is not recovered yet. A server that cannot
// save needs an operator.
func (l *nodeLog) waits(node int, address string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	level := slog.LevelDebug
	if errors.Is(err, errNotSaved) && !errors.Is(l.nodes[node].why, errNotSaved) {
		level = slog.LevelWarn
	}
	l.nodes[node].why = err
	l.logger.Log(context.Background(), level, "a Redis node is not recovered yet", "node", address, "error", err)
}

// waiting returns why a node is not recovered yet, or nil.
func (l *nodeLog) waiting(node int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nodes[node].why
}

// recovered records that the node votes.
func (l *nodeLog) recovered(node int, address string, floor uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes[node].empty {
		l.nodes[node].empty, l.nodes[node].why = false, nil
		l.logger.Info("Redis node votes again", "node", address, "floor", floor)
	}
}

// debug logs a change of a lease at the level debug.
func (b *Backend) debug(message string, h *engine.Held) {
	ctx := context.Background()
	if !b.config.Logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	names := make([]string, len(h.Resources))
	for i, name := range h.Resources {
		names[i] = string(name)
	}
	b.config.Logger.LogAttrs(ctx, slog.LevelDebug, message, slog.String("resource", strings.Join(names, ",")),
		slog.Uint64("token", uint64(h.Token)),
		slog.String("mode", "efficiency"), slog.String("holder", h.Holder), slog.String("user", h.User))
}
