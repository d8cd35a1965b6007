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

// blockedAfter is how long a step may take before the suite assumes that it is
// blocked by another holder's lock. No result depends on it. A longer time only
// makes it more likely that a gate without a lock fails the suite.
const blockedAfter = 20 * time.Millisecond

// caseTimeout limits one case of the suite.
const caseTimeout = 10 * time.Minute

// scenario is one case of the suite, with its own storage.
type scenario struct {
	*testing.T
	ctx  context.Context
	open Opener
}

// Run runs the suite. Each call of fresh returns an Opener of a new, empty
// storage.
func Run(t *testing.T, fresh func(t *testing.T) Opener) {
	for _, c := range scripts {
		t.Run(c.name, func(t *testing.T) { runCase(t, fresh, func(s *scenario) { s.play(c.rule, c.steps) }) })
	}
	for _, c := range []struct {
		name string
		run  func(s *scenario)
	}{
		{"invalid names and tokens", invalid},
		{"names are compared byte by byte", names},
		{"cancelled context", cancelled},
		{"another handle sees the mark", reopened},
		{"counters and audit hook", counters},
		{"many resources", manyResources},
		{"every interleaving of two holders", interleavings},
		{"concurrent first use", firstUse},
		{"no update is lost", noLostUpdate},
		{"marks only rise", marksOnlyRise},
		{"random history", histories(fencing.Rule{})},
		{"random history with a bound", histories(fencing.Rule{MaxJump: 40})},
	} {
		t.Run(c.name, func(t *testing.T) { runCase(t, fresh, c.run) })
	}
	probe := fresh(t)(t, fencing.Rule{})
	for _, c := range []struct {
		name string
		run  func(s *scenario, p Pauser)
	}{
		{"a failed write leaves mark and data", failedWrite},
		{"a panic in the write leaves mark and data", panickingWrite},
		{"paused between check and commit", pausedWriter},
		{"paused with a mark raised by another handle", func(s *scenario, p Pauser) { pausedAndEntered(s, p, 1) }},
		{"paused without a token", func(s *scenario, p Pauser) { pausedAndEntered(s, p, fencing.None) }},
		{"cancelled between check and commit", cancelledInside},
		{"cancelled while waiting for another holder", cancelledWaiting},
	} {
		runIfSupported(t, fresh, probe, c.name, c.run)
	}
	runIfSupported(t, fresh, probe, "crash between check and commit", crash)
	runIfSupported(t, fresh, probe, "reset of an absurd mark", reset)
	runIfSupported(t, fresh, probe, "reset beside writers", resetBesideWriters)
}

func runCase(t *testing.T, fresh func(t *testing.T) Opener, run func(s *scenario)) {
	ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
	defer cancel()
	run(&scenario{T: t, ctx: ctx, open: fresh(t)})
}

// runIfSupported runs the case if the subjects of this storage, such as probe,
// implement S, and logs it otherwise: the gate has no such moment, or its test
// cannot create one.
func runIfSupported[S Subject](
	t *testing.T, fresh func(t *testing.T) Opener, probe Subject, name string, run func(s *scenario, subject S),
) {
	if _, ok := probe.(S); !ok {
		t.Logf("case %q is not run: the subject of this storage does not implement %s", name, reflect.TypeFor[S]())
		return
	}
	t.Run(name, func(t *testing.T) {
		runCase(t, fresh, func(s *scenario) { run(s, s.handle().(S)) })
	})
}

// handle opens another handle with the default bound on the jump.
func (s *scenario) handle() Subject {
	s.Helper()
	return s.open(s.T, fencing.Rule{})
}

// holds requires the mark and the value of the resource.
func (s *scenario) holds(subject Subject, resource fencing.Resource, mark fencing.Token, value string) {
	s.Helper()
	s.holdsIn(s, subject, resource, mark, value)
}

func (s *scenario) holdsIn(t require.TestingT, subject Subject, resource fencing.Resource, mark fencing.Token,
	value string) {
	gotMark, err := subject.Mark(s.ctx, resource)
	require.NoError(t, err)
	gotValue, err := subject.Read(s.ctx, resource)
	require.NoError(t, err)
	require.Equal(t, mark, gotMark, "mark of %q", string(resource))
	require.Equal(t, value, gotValue, "value of %q", string(resource))
}

// refused requires err to be the refusal of token because of mark.
func (s *scenario) refused(err error, resource fencing.Resource, token, mark fencing.Token) {
	s.Helper()
	requireStale(s, err, resource, token, mark)
}

func requireStale(t require.TestingT, err error, resource fencing.Resource, token, mark fencing.Token) {
	var stale *fencing.StaleError
	require.ErrorAs(t, err, &stale, "the call must be refused")
	require.Equal(t, fencing.StaleError{Resource: resource, Token: token, Mark: mark}, *stale)
	require.NotErrorIs(t, err, storagegate.ErrUncertain, "a refused write has a known outcome")
}

// applied reports whether a write that returned err was applied. It fails the
// test if err is neither nil nor a refusal.
func (s *scenario) applied(err error) bool {
	s.Helper()
	if err != nil && !errors.Is(err, fencing.ErrStale) {
		require.NoError(s, err)
	}
	return err == nil
}
