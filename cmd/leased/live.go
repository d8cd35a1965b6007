package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/lockview"
	"github.com/leased-project/leased/cmd/leased/internal/terminal"
)

// redrawInterval is the time after which a live screen is drawn again without news: the
// clock moves, and old data is marked.
const redrawInterval = time.Second

// live is a live screen.
type live struct {
	access *access
	view   *lockview.View
	screen *terminal.Screen
}

// run draws the screen until the user quits or ctx ends.
func (l *live) run(ctx context.Context) error {
	defer l.screen.Close()
	tick := time.NewTicker(redrawInterval)
	defer tick.Stop()
	l.draw() // measures how many locks fit
	source := l.open(ctx)
	defer func() { source.close() }()
	for {
		if err := l.draw(); err != nil {
			return err
		}
		select {
		case update := <-source.updates:
			l.access.learn(update.Cluster)
			l.view.Update(update)
		case err := <-source.failed:
			return err
		case key := <-l.screen.Keys():
			switch l.view.Key(key) {
			case lockview.Quit:
				return nil
			case lockview.Request:
				source.close()
				source = l.open(ctx)
			}
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (l *live) draw() error {
	width, height := l.screen.Size()
	return l.screen.Draw(l.view.Lines(width, height, time.Now()))
}

// source is a running feed.
type source struct {
	updates chan lockview.Update
	failed  chan error
	cancel  context.CancelFunc
	work    sync.WaitGroup
}

// open starts a feed for the request of the view.
func (l *live) open(parent context.Context) *source {
	ctx, cancel := context.WithCancel(parent)
	s := &source{updates: make(chan lockview.Update), failed: make(chan error, 1), cancel: cancel}
	f := newFeed(l.access, l.view.Keys, func(u lockview.Update) {
		select {
		case s.updates <- u:
		case <-ctx.Done():
		}
	})
	request := l.view.Request()
	s.work.Go(func() { s.failed <- f.run(ctx, request) })
	return s
}

func (s *source) close() {
	s.cancel()
	s.work.Wait()
}

// follow prints the overview without a terminal until ctx ends: lines for what has
// changed, or each overview as a line of JSON.
func (o *output) follow(ctx context.Context, a *access, request *pb.OverviewRequest, out, problems io.Writer) error {
	var changes lockview.Changes
	printed := ""
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := newFeed(a, false, func(u lockview.Update) {
		problem := u.Problem
		if missing := u.Overview.GetMissing(); problem == "" && missing != "" {
			problem = "locks in efficiency mode are missing: " + missing
		}
		if problem != printed {
			if printed = problem; printed != "" {
				fmt.Fprintf(problems, "leased: %s\n", terminal.Clean(printed))
			}
		}
		if u.Overview == nil {
			return
		}
		if err := o.overview(out, &changes, u); err != nil {
			cancel(err) // the reader of the output is gone
		}
	})
	return f.run(ctx, request)
}

// overview prints one overview.
func (o *output) overview(out io.Writer, changes *lockview.Changes, u lockview.Update) error {
	if o.format == "json" {
		return printJSON(out, u.Overview, "")
	}
	for _, line := range changes.Lines(u.Overview, u.Time) {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

// openScreen returns the terminal of the program, or nil if there is none, or if JSON is
// wanted.
func (o *output) openScreen() (*terminal.Screen, error) {
	if o.format == "json" {
		return nil, nil //nolint:nilnil // nil means no terminal
	}
	screen, err := terminal.Open(os.Stdin, os.Stdout)
	if errors.Is(err, terminal.ErrNoTerminal) {
		return nil, nil //nolint:nilnil // nil means no terminal
	}
	return screen, err
}
