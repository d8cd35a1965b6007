package machine

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

func TestAttempts(t *testing.T) {
	run(t, []scenario{
		{"an acquire applied twice has one outcome", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{write(ann, 1, "a"), "granted #1", ""},
			{write(bob, 1, "a"), "queued", "bob/1 queued a"},
			{write(bob, 1, "a"), "queued", ""},
			{read(ann, 1, "a"), "other request", ""},
			{write(ann, 1, "b"), "other request", ""},
			{free(ann, 1), "done", "ann/1 released a #1, bob/1 granted a #2"},
			{write(bob, 1, "a"), "granted #2", ""},
		}},
		{"a late copy after the release has ended", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{free(ann, 1), "done", "ann/1 released a #1"},
			{write(ann, 1, "a"), "ended", ""},
			{free(ann, 1), "ended", ""},
			{write(ann, 2, "a"), "granted #2", "ann/2 granted a #2"},
		}},
		{"a late copy after the cancel of a waiter has ended", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{write(bob, 1, "a"), "queued", "bob/1 queued a"},
			{free(bob, 1), "done", "bob/1 cancelled a"},
			{free(ann, 1), "done", "ann/1 released a #1"},
			{write(bob, 1, "a"), "ended", ""},
		}},
		{"a release before its acquire ends it", []step{
			{free(ann, 7), "ended", ""},
			{write(ann, 7, "a"), "ended", ""},
			{write(ann, 6, "a"), "granted #1", "ann/6 granted a #1"},
			{write(bob, 7, "b"), "granted #2", "bob/7 granted b #2"}, // nonces belong to a session
		}},
		{"a copy that does not wait ends a waiter, and no grant", []step{
			{read(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{write(bob, 1, "a"), "queued", "bob/1 queued a"},
			{read(eve, 1, "a"), "queued", "eve/1 queued a"},
			{try(write(bob, 1, "a")), "held", "bob/1 cancelled a, eve/1 granted a #2"},
			{write(bob, 1, "a"), "ended", ""},
			{try(read(eve, 1, "a")), "granted #2", ""},
			{try(write(eve, 1, "a")), "other request", ""},
		}},
		{"a late copy of a refused try is not granted", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{try(write(bob, 1, "a")), "held", ""},
			{free(ann, 1), "done", "ann/1 released a #1"},
			{try(write(bob, 1, "a")), "ended", ""},
			{write(bob, 1, "a"), "ended", ""},
		}},
		{"no session", []step{
			{write(engine.SessionID{9}, 1, "a"), "no session", ""},
			{free(engine.SessionID{9}, 1), "no session", ""},
			{&CloseSession{Session: engine.SessionID{9}}, "no session", ""},
			{&Expire{Session: engine.SessionID{9}, Generation: 1}, "no session", ""},
		}},
	})
}

func TestSessions(t *testing.T) {
	run(t, []scenario{
		{"an expiry of another generation has no effect", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{&Lead{}, "done g2", ""},
			{&Expire{Session: ann, Generation: 1}, "outdated", ""},
			{&Expire{Session: ann, Generation: 3}, "outdated", ""},
			{write(ann, 1, "a"), "granted #1", ""},
			{&Expire{Session: ann, Generation: 2}, "done", ""},
			{&EndRequests{Max: MaxEndRequests}, "done", "ann/1 expired a #1"},
			{write(ann, 2, "a"), "no session", ""},
		}},
		{"the end of a session releases its leases and cancels its waiters", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{write(ann, 2, "a"), "queued", "ann/2 queued a"},
			{write(bob, 1, "b"), "granted #2", "bob/1 granted b #2"},
			{write(ann, 3, "b"), "queued", "ann/3 queued b"},
			{write(bob, 2, "a"), "queued", "bob/2 queued a"},
			{write(eve, 1, "b"), "queued", "eve/1 queued b"},
			{&CloseSession{Session: ann}, "done", ""},
			{&EndRequests{Max: MaxEndRequests}, "done",
				"ann/2 cancelled a, ann/3 cancelled b, ann/1 released a #1, bob/2 granted a #3"},
			{&Expire{Session: bob, Generation: 1}, "done", ""},
			{&EndRequests{Max: MaxEndRequests}, "done", "bob/1 expired b #2, bob/2 expired a #3, eve/1 granted b #4"},
			{&CloseSession{Session: ann}, "no session", ""},
		}},
		{"opening an open session returns it", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{free(ann, 2), "ended", ""},
			{&OpenSession{Session: ann, TTL: time.Hour}, "done", ""},
			{write(ann, 1, "a"), "granted #1", ""},
			{write(ann, 2, "a"), "ended", ""},
		}},
		// A session's ended attempts are forgotten with it. In production its incarnation
		// distinguishes it from the next one.
		{"a session that is opened again is another session", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{&CloseSession{Session: ann}, "done", ""},
			{&EndRequests{Max: MaxEndRequests}, "done", "ann/1 released a #1"},
			{&OpenSession{Session: ann, TTL: time.Second}, "done", ""},
			{write(ann, 1, "a"), "granted #2", "ann/1 granted a #2"},
		}},
	})
	m := played(t, &OpenSession{Session: ann, TTL: time.Second}, &OpenSession{Session: ann, TTL: time.Hour},
		&OpenSession{Session: bob, TTL: time.Minute})
	page, left := m.Sessions(AllSessions, 10)
	require.Zero(t, left)
	require.Equal(t, []OpenedSession{{bob, SessionInfo{TTL: time.Minute, Incarnation: 2}},
		{ann, SessionInfo{TTL: time.Second, Incarnation: 1}}}, page)
}

func TestBreak(t *testing.T) {
	run(t, []scenario{
		{"breaks the grant with this token", []step{
			{&Break{Resource: "a", Token: 1}, "not held", ""},
			{read(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{read(bob, 1, "a", "b"), "granted #2", "bob/1 granted a+b #2"},
			{write(eve, 1, "b"), "queued", "eve/1 queued b"},
			{&Break{Resource: "a", Token: 3}, "not held", ""},
			{&Break{Resource: "b", Token: 1}, "not held", ""},
			{&Break{Resource: "a", Token: 2}, "done", "bob/1 broken a+b #2, eve/1 granted b #3"},
			{&Break{Resource: "a", Token: 2}, "not held", ""},
			{read(bob, 1, "a", "b"), "ended", ""},
			{read(ann, 1, "a"), "granted #1", ""},
			{write(bob, 2, "b"), "queued", "bob/2 queued b"}, // its session is still open
		}},
	})
}

func TestLockDelay(t *testing.T) {
	run(t, []scenario{
		{"from a break until EndDelay", []step{
			{write(ann, 1, "slow"), "granted #1", "ann/1 granted slow #1"},
			{write(bob, 1, "slow"), "queued", "bob/1 queued slow"},
			{&Break{Resource: "slow", Token: 1}, "done", "ann/1 broken slow #1, slow delayed 6"},
			{try(write(eve, 1, "slow")), "held", ""},
			{&EndDelay{Resource: "slow", Delay: 5, Generation: 1}, "outdated", ""},
			{&EndDelay{Resource: "slow", Delay: 6, Generation: 0}, "outdated", ""},
			{&EndDelay{Resource: "other", Delay: 6, Generation: 1}, "outdated", ""},
			{&EndDelay{Resource: "slow", Delay: 0, Generation: 1}, "outdated", ""},
			{&Lead{}, "done g2", ""},
			{&EndDelay{Resource: "slow", Delay: 6, Generation: 1}, "outdated", ""},
			{&EndDelay{Resource: "slow", Delay: 6, Generation: 2}, "done", "slow opened, bob/1 granted slow #2"},
			{&EndDelay{Resource: "slow", Delay: 6, Generation: 2}, "outdated", ""},
		}},
		{"not after a release or a close", []step{
			{write(ann, 1, "slow"), "granted #1", "ann/1 granted slow #1"},
			{free(ann, 1), "done", "ann/1 released slow #1"},
			{write(ann, 2, "slow"), "granted #2", "ann/2 granted slow #2"},
			{&CloseSession{Session: ann}, "done", ""},
			{&EndRequests{Max: MaxEndRequests}, "done", "ann/2 released slow #2"},
			{try(write(bob, 1, "slow")), "granted #3", "bob/1 granted slow #3"},
		}},
		{"a waiter that expires leaves no delay", []step{
			{write(ann, 1, "slow"), "granted #1", "ann/1 granted slow #1"},
			{write(bob, 1, "slow"), "queued", "bob/1 queued slow"},
			{&Expire{Session: bob, Generation: 1}, "done", ""},
			{&EndRequests{Max: MaxEndRequests}, "done", "bob/1 cancelled slow"},
			{free(ann, 1), "done", "ann/1 released slow #1"},
			{try(write(eve, 1, "slow")), "granted #2", "eve/1 granted slow #2"},
		}},
		{"a second delay replaces the first", []step{
			{read(ann, 1, "slow"), "granted #1", "ann/1 granted slow #1"},
			{read(bob, 1, "slow"), "granted #2", "bob/1 granted slow #2"},
			{&Expire{Session: ann, Generation: 1}, "done", ""},
			{&EndRequests{Max: MaxEndRequests}, "done", "ann/1 expired slow #1, slow delayed 6"},
			{try(read(eve, 1, "slow")), "held", ""},
			{&Expire{Session: bob, Generation: 1}, "done", ""},
			{&EndRequests{Max: MaxEndRequests}, "done", "bob/1 expired slow #2, slow delayed 8"},
			{&EndDelay{Resource: "slow", Delay: 6, Generation: 1}, "outdated", ""},
			{&EndDelay{Resource: "slow", Delay: 8, Generation: 1}, "done", "slow opened"},
			{try(read(eve, 2, "slow")), "granted #3", "eve/2 granted slow #3"},
		}},
		{"a set is delayed where its policies have a lock delay", []step{
			{write(ann, 1, "a", "slow", "slow2"), "granted #1", "ann/1 granted a+slow+slow2 #1"},
			{write(bob, 1, "a", "slow2"), "queued", "bob/1 queued a+slow2"},
			{&Expire{Session: ann, Generation: 1}, "done", ""},
			{&EndRequests{Max: MaxEndRequests}, "done", "ann/1 expired a+slow+slow2 #1, slow delayed 6, slow2 delayed 7"},
			{&EndDelay{Resource: "slow", Delay: 6, Generation: 1}, "done", "slow opened"},
			{try(write(eve, 1, "a")), "held", ""},
			{&EndDelay{Resource: "slow2", Delay: 7, Generation: 1}, "done", "slow2 opened, bob/1 granted a+slow2 #2"},
		}},
	})
	m := played(t, &OpenSession{Session: ann, TTL: time.Second},
		&SetPolicy{Policy: engine.Policy{Mode: engine.Correctness, LockDelay: time.Minute}},
		as(1, write(ann, 1, "b", "c")), &Break{Resource: "b", Token: 1})
	b := Event{Type: EventDelayed, Resources: []fencing.Resource{"b"}, Mode: engine.Correctness, DelayID: 3,
		Delay: time.Minute}
	c := b
	c.Resources, c.DelayID = []fencing.Resource{"c"}, 4
	restored, err := Restore(m.Snapshot())
	require.NoError(t, err)
	for _, from := range []*Machine{m, restored} {
		page, left := from.Delays(AllDelays, 1)
		require.Equal(t, []Event{c}, page)
		page, left = from.Delays(left, 1)
		require.Equal(t, []Event{b}, page)
		require.Zero(t, left)
	}
	m.Apply(&EndDelay{Resource: "b", Delay: 3, Generation: m.Generation()})
	page, _ := m.Delays(AllDelays, AllDelays)
	require.Equal(t, []Event{c}, page)
}

func TestTokens(t *testing.T) {
	run(t, []scenario{
		{"tokens are global and outlive every lock", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{free(ann, 1), "done", "ann/1 released a #1"},
			{write(ann, 2, "b"), "granted #2", "ann/2 granted b #2"},
			{write(ann, 3, "a"), "granted #3", "ann/3 granted a #3"},
		}},
		{"the floor raises all later tokens", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{&RaiseFloor{By: 1 << 32}, "done #4294967297", ""},
			{write(ann, 1, "a"), "granted #1", ""},
			{write(ann, 2, "b"), "granted #4294967298", "ann/2 granted b #4294967298"},
			{&RaiseFloor{}, "done #4294967298", ""},
		}},
		{"tokens can be exhausted", []step{
			{&RaiseFloor{By: fencing.MaxToken - 1}, "done #9007199254740990", ""},
			{&RaiseFloor{By: 2}, "exhausted", ""},
			{write(ann, 1, "a"), "granted #9007199254740991", "ann/1 granted a #9007199254740991"},
			{write(bob, 1, "b"), "exhausted", ""},
			{write(bob, 1, "b"), "exhausted", ""},
			{&RaiseFloor{By: 1}, "exhausted", ""},
			{write(ann, 1, "a"), "granted #9007199254740991", ""},
			{free(ann, 1), "done", "ann/1 released a #9007199254740991"},
		}},
		{"a waiter stays queued when tokens are exhausted", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{write(bob, 1, "a"), "queued", "bob/1 queued a"},
			{&RaiseFloor{By: fencing.MaxToken - 1}, "done #9007199254740991", ""},
			{free(ann, 1), "done", "ann/1 released a #1"},
			{write(bob, 1, "a"), "queued", ""},
			{free(bob, 1), "done", "bob/1 cancelled a"},
		}},
	})
}

// TestEventsAreComplete checks every field of events, which the scenarios do not.
func TestEventsAreComplete(t *testing.T) {
	m := played(t, &OpenSession{Session: ann, TTL: time.Second},
		&SetPolicy{Policy: engine.Policy{Mode: engine.Correctness, LockDelay: time.Minute}})
	asked := as(1, permit(ann, 4, 2, "p"))
	asked.Request.Holder = "worker"
	asked.Request.Metadata = map[string]string{"k": "v"}
	result, events := m.Apply(asked)
	require.Equal(t, Result{Code: Granted, Token: 1, Slot: 1, Mode: engine.Correctness}, result)
	of := Event{Type: EventGranted, Resources: []fencing.Resource{"p"}, Session: ann, Incarnation: 1, Nonce: 4, Token: 1,
		Slot: 1,
		Mode: engine.Correctness, Holder: "worker"}
	require.Equal(t, []Event{of}, events)
	require.Equal(t, engine.Status{Resource: "p", Mode: engine.Correctness, Permits: 2, Holders: []engine.Party{
		{Holder: "worker", Session: ann, Nonce: 4, Kind: engine.Permit, Slot: 1, Token: 1,
			Metadata: map[string]string{"k": "v"}},
	}}, m.Inspect("p"))

	_, events = m.Apply(&Break{Resource: "p", Token: 1})
	of.Type = EventBroken
	require.Equal(t, []Event{of, {Type: EventDelayed, Resources: []fencing.Resource{"p"}, Mode: engine.Correctness,
		DelayID: 3, Delay: time.Minute}}, events)
	require.Equal(t, engine.Status{Resource: "p", Mode: engine.Correctness, Delayed: true}, m.Inspect("p"))

	_, events = m.Apply(&EndDelay{Resource: "p", Delay: 3})
	require.Equal(t, []Event{{Type: EventOpened, Resources: []fencing.Resource{"p"}, Mode: engine.Correctness}}, events)
	require.Empty(t, m.locks, "unused locks have no state")
}

func TestValidate(t *testing.T) {
	for _, c := range everyCommand() {
		require.NoError(t, Validate(c), "%T", c)
	}
	for _, c := range []Command{
		&OpenSession{Session: ann}, &OpenSession{Session: ann, TTL: engine.MaxTTL + 1}, write(ann, 0, "a"), write(ann, 1),
		write(ann, 1, "b", "a"),
		write(ann, 1, "a", "a"), permit(ann, 1, 0, "a"), permit(ann, 1, engine.MaxPermits+1, "a"), free(ann, 0),
		&Break{Resource: "a"}, &Break{Resource: "", Token: 1}, &EndDelay{Delay: 1}, mode("x", engine.AnyMode, 0),
		&SetPolicy{Policy: engine.Policy{Mode: engine.Correctness, LockDelay: -1}}, &RaiseFloor{By: fencing.MaxToken + 1},
		&SetPolicy{Policy: engine.Policy{Mode: engine.Correctness, Next: engine.Efficiency}}, &FinishMigration{Prefix: "a"},
		&FinishFleet{}, &FinishReconcile{},
		&SetFleet{Fleet: engine.Fleet{Namespace: "n"}},
		&SetFleet{Fleet: engine.Fleet{Namespace: "n", Addresses: []string{"a:1", "b:1"}, MaxTTL: time.Second}},
		&NameLife{Member: "a:1"}, &NameLife{Life: "l"}, &CloseSets{}, &FinishRecovery{Member: "a:1"},
		&Reconcile{Lives: []string{"a", "", "a"}}, &MarkRestored{Fleet: three}, &RaiseCeiling{To: fencing.MaxToken + 1},
		&Reconcile{Ceiling: fencing.MaxToken + 1},
		&Reconcile{Version: maxVersion + 1}, &MarkRestored{Version: maxCount}, &MarkRestored{Ceiling: fencing.MaxToken + 1},
		&SetMemberAPI{Address: "a:1"},
	} {
		require.Error(t, Validate(c), "%+v", c)
		_, err := Decode(Encode(c))
		require.ErrorIs(t, err, ErrMalformed, "%+v", c)
	}
}

// A caller may still read a command that the log is encoding. Run with -race.
func TestEncodeOnlyReads(t *testing.T) {
	command := &SetPolicy{Policy: engine.Policy{Prefix: "a", Mode: engine.Correctness}, Now: true}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				Encode(command)
			}
		})
	}
	wg.Wait()
	require.True(t, command.Now)
}
