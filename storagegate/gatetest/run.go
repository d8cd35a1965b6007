package gatetest

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

// grace is how long a schedule waits for a step that may be blocked by another
// holder's lock. No outcome depends on it: with a longer one a gate without a
// lock is caught more surely, that is all.
const grace = 20 * time.Millisecond

// patience is how long a case may take before something must be stuck.
const patience = 12 * time.Minute

// stage is one case with a storage of its own.
type stage struct {
	*testing.T
	ctx  context.Context
	open Opener
}

// Run tests the gate over the storages that fresh makes: each call returns the
// opener of a new, empty one.
func Run(t *testing.T, fresh func(t *testing.T) Opener) {
	for _, c := range []struct {
		name string
		run  func(s *stage)
	}{
		{"story of two holders", story},
		{"equal token twice", equalTwice},
		{"stale after newer", staleAfterNewer},
		{"without a token, before and after the first fence", sticky},
		{"enter raises the mark before the first read", enterFirst},
		{"absurd token with a bound", bound},
		{"largest token", largestToken},
		{"what is no name or token", invalid},
		{"names are compared byte by byte", names},
		{"cancelled context", cancelled},
		{"another handle sees the mark", reopened},
		{"counters and audit hook", counters},
		{"10,000 resources", manyResources},
		{"every interleaving of two holders", interleavings},
		{"concurrent first use", firstUse},
		{"no update is lost", noLostUpdate},
		{"marks only rise", marksOnlyRise},
		{"random history", history},
		{"random history with a bound", boundedHistory},
	} {
		t.Run(c.name, func(t *testing.T) { perform(t, fresh, c.run) })
	}
	for _, c := range []struct {
		name string
		run  func(s *stage, p Pauser)
	}{
		{"a failed write leaves mark and data", failedWrite},
		{"a panic in the write leaves mark and data", panickingWrite},
		{"paused between check and commit", pausedWriter},
		{"paused on a mark that another raised", pausedEqual},
		{"paused without a token", pausedTokenless},
		{"cancelled between check and commit", cancelledInside},
		{"cancelled while waiting for another holder", cancelledWaiting},
	} {
		probe(t, fresh, c.name, c.run)
	}
	probe(t, fresh, "crash between check and commit", crash)
}

func perform(t *testing.T, fresh func(t *testing.T) Opener, run func(s *stage)) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	run(&stage{T: t, ctx: ctx, open: fresh(t)})
}

// probe runs the case if a subject of this storage is an S, and says so if not:
// its gate has no such moment in its life, or its test cannot make one.
func probe[S Subject](t *testing.T, fresh func(t *testing.T) Opener, name string, run func(s *stage, subject S)) {
	if _, ok := fresh(t)(t, fencing.Rule{}).(S); !ok {
		t.Logf("case not run: %q, since the subject of this storage is no %s", name, reflect.TypeFor[S]())
		return
	}
	t.Run(name, func(t *testing.T) {
		perform(t, fresh, func(s *stage) { run(s, s.handle().(S)) })
	})
}

func (s *stage) handle() Subject {
	s.Helper()
	return s.open(s.T, fencing.Rule{})
}

// holds requires the state that both the data and the mark of the resource
// must be in, seen from a new handle too.
func (s *stage) holds(subject Subject, resource fencing.Resource, mark fencing.Token, value string) {
	s.Helper()
	gotMark, err := subject.Mark(s.ctx, resource)
	require.NoError(s, err)
	gotValue, err := subject.Read(s.ctx, resource)
	require.NoError(s, err)
	require.Equal(s, mark, gotMark, "mark of %q", string(resource))
	require.Equal(s, value, gotValue, "value of %q", string(resource))
}

// refused requires err to be the one refusal that the rule allows here.
func (s *stage) refused(err error, resource fencing.Resource, token, mark fencing.Token) {
	s.Helper()
	var stale *fencing.StaleError
	require.ErrorAs(s, err, &stale, "the write must be refused")
	require.Equal(s, fencing.StaleError{Resource: resource, Token: token, Mark: mark}, *stale)
	require.NotErrorIs(s, err, storagegate.ErrUncertain, "a refused write has a known outcome")
}

// settled reports whether a write that returned err was applied, or panics the
// test if err is neither an admission nor a refusal.
func (s *stage) settled(err error) bool {
	s.Helper()
	if err != nil && !errors.Is(err, fencing.ErrStale) {
		require.NoError(s, err)
	}
	return err == nil
}
