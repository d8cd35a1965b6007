package server_test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/lease/engine"
)

// eventsOf returns the history of a lock, oldest first, as texts such as "granted to a".
func eventsOf(t testing.TB, address, name string) (events []string, response *pb.HistoryResponse) {
	t.Helper()
	response, err := pb.NewLeaseServiceClient(dial(t, address)).History(testContext(t), &pb.HistoryRequest{Resource: name})
	require.NoError(t, err)
	for _, e := range response.Events {
		events = append([]string{e.Type + " " + e.Party.Holder + " " + e.Mode}, events...)
	}
	return events, response
}

// The history of a lock has its grants, waits, losses and refused writes, with durations.
func TestHistory(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	a := s.Address()
	first := mustPost(t, a, "/v1/acquire", `{"resource":"h","ttl":"10m","holder":"ann"}`)
	waiting := postAsync(t, a, "/v1/acquire", `{"resource":"h","ttl":"10m","holder":"bob","wait":"10m"}`)
	eventually(t, "bob waits", func() bool { events, _ := eventsOf(t, a, "h"); return len(events) == 2 })
	inspected := mustPost(t, a, "/v1/inspect", `{"resource":"h"}`)["lock"].(map[string]any)
	for _, side := range []string{"holders", "waiters"} {
		party := inspected[side].([]any)[0].(map[string]any)
		since, err := time.Parse(time.RFC3339Nano, fmt.Sprint(party["since"]))
		require.NoError(t, err)
		require.Less(t, time.Since(since).Abs(), time.Hour)
		_, err = time.ParseDuration(fmt.Sprint(party["age"]))
		require.NoError(t, err)
	}
	listed := fmt.Sprint(mustPost(t, a, "/v1/list", `{}`))
	require.Contains(t, listed, "since:")
	require.NotEmpty(t, watchEvents(t, a, &pb.WatchRequest{Resource: "h"})().Party.Since)

	mustPost(t, a, "/v1/report-refusal",
		fmt.Sprintf(`{"resource":"h","token":%.0f,"mark":99,"gate":"http","reason":"stale","holder":"old"}`, first["token"]))
	mustPost(t, a, "/v1/release", leaseName(first))
	second := <-waiting
	mustPost(t, a, "/v1/break", leaseName(second))
	events, response := eventsOf(t, a, "h")
	require.Equal(t, []string{"granted ann correctness", "waiting bob correctness", "refused old ",
		"released ann correctness",
		"granted bob correctness", "broken bob correctness"}, events)
	require.False(t, response.Truncated)
	newest := response.Events[0]
	require.EqualValues(t, second["token"], newest.Party.Token)
	require.NotEmpty(t, newest.Duration, "how long bob held it")
	require.NotEmpty(t, response.Events[1].Duration, "how long bob waited")
	refused := response.Events[3]
	require.EqualValues(t, 99, refused.Mark)
	require.Equal(t, "http", refused.Gate)
	require.Equal(t, "stale", refused.Reason)

	limited := mustPost(t, a, "/v1/history", `{"resource":"h","limit":2}`)
	require.Len(t, limited["events"], 2)
	require.Equal(t, true, limited["truncated"])
	for body, says := range map[string]string{`{"resource":"h","limit":-1}`: "limit (-1)",
		`{"resource":"h","limit":1001}`: "limit (1001)", `{}`: "name"} {
		code, answer := post(t, a, "/v1/history", body)
		require.Equal(t, http.StatusBadRequest, code)
		require.Contains(t, answer["message"], says)
	}
	for body, says := range map[string]string{`{"resource":"h","gate":"sql","reason":"bored"}`: "reason",
		`{"resource":"h"}`: "gate",
		`{"resource":"h","gate":"sql","token":9007199254740993}`: "token"} {
		code, answer := post(t, a, "/v1/report-refusal", body)
		require.Equal(t, http.StatusBadRequest, code)
		require.Contains(t, answer["message"], says)
	}
}

// After a snapshot was restored, the events before it are gone, and the answer says so. The
// lease that the restore ended has an event. The time of a new grant is right although the
// tokens jump.
func TestHistoryAfterRestore(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	a := s.Address()
	before := mustPost(t, a, "/v1/acquire", `{"resource":"h","ttl":"10m","holder":"ann"}`)
	snapshot := saveSnapshot(t, a)
	mustPost(t, a, "/v1/release", leaseName(before))
	mustPost(t, a, "/v1/acquire", `{"resource":"h","ttl":"10m","holder":"eve"}`)
	restoreSnapshot(t, a, snapshot)
	var after map[string]any
	eventually(t, "the restored service grants", func() bool {
		code, answer := post(t, a, "/v1/acquire", `{"resource":"h","ttl":"10m","holder":"bob"}`)
		after = answer
		return code == http.StatusOK
	})
	require.Greater(t, after["token"], before["token"].(float64)+1<<31)
	events, response := eventsOf(t, a, "h")
	require.Equal(t, []string{"ended eve correctness", "granted bob correctness"}, events)
	require.True(t, response.Truncated)
	holder := mustPost(t, a, "/v1/inspect",
		`{"resource":"h"}`)["lock"].(map[string]any)["holders"].([]any)[0].(map[string]any)
	since, err := time.Parse(time.RFC3339Nano, holder["since"].(string))
	require.NoError(t, err)
	granted, err := time.Parse(time.RFC3339Nano, response.Events[0].Time)
	require.NoError(t, err)
	require.WithinDuration(t, granted, since, 2*time.Second)
	started, err := time.Parse(time.RFC3339Nano, response.Since)
	require.NoError(t, err)
	require.False(t, granted.Before(started))
}

// The history of a lock continues when its mode changes, and locks in efficiency mode are
// in the overview. Without the Redis nodes the overview says what is missing.
func TestHistoryOfBothModes(t *testing.T) {
	t.Parallel()
	servers := startRedis(t, 3)
	s := startServer(t, func(c *server.Config) { c.Redis = fleetOf(servers, longTTL) })
	a := s.Address()
	setMode(t, a, "fast/", engine.Correctness)
	mustPost(t, a, "/v1/release", leaseName(mustPost(t, a, "/v1/acquire", `{"resource":"fast/h","holder":"slow"}`)))
	setMode(t, a, "fast/", engine.Efficiency)
	held := mustPost(t, a, "/v1/acquire", `{"resource":"fast/h","holder":"fast","ttl":"1m"}`)
	events, _ := eventsOf(t, a, "fast/h")
	require.Equal(t, []string{"granted slow correctness", "released slow correctness", "granted fast efficiency"}, events)

	mustPost(t, a, "/v1/acquire", `{"resource":"slow/h","holder":"slow","ttl":"10m"}`)
	client := pb.NewLeaseServiceClient(dial(t, a))
	both, err := client.Overview(testContext(t), &pb.OverviewRequest{Interval: "1ms"})
	require.NoError(t, err)
	next := func() *pb.OverviewResponse {
		response, err := both.Recv()
		require.NoError(t, err)
		return response
	}
	eventually(t, "both modes are listed", func() bool {
		response := next()
		return response.Missing == "" && response.TotalLocks == 2 && response.Locks[0].Lock.Mode == "efficiency" &&
			response.Locks[0].Lock.Holders[0].Since != "" &&
			response.Locks[1].Lock.Resource == "slow/h"
	})

	prefix := "fast/"
	watch := watchEvents(t, a, &pb.WatchRequest{Prefix: &prefix}) // somebody looks at the lock
	require.Equal(t, "granted", watch().Type)
	mustPost(t, a, "/v1/break", leaseName(held))
	eventually(t, "the watch sees the end of the lease", func() bool { return watch().Type == "broken" })
	events, _ = eventsOf(t, a, "fast/h")
	require.Equal(t, "broken fast efficiency", events[len(events)-1])
	require.Len(t, events, 4, "each event is recorded once: %v", events)

	for _, r := range servers {
		r.Stop()
	}
	eventually(t, "the overview says what is missing", func() bool {
		response := next()
		return response.Missing == "the Redis nodes did not answer; see 'leased redis status'" && response.TotalLocks == 1 &&
			response.Locks[0].Lock.Resource == "slow/h"
	})
}

// names returns the first n names of a format.
func names(format string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf(format, i))
	}
	return all
}

// Sorted lists have the lock that matters first, pages do not overlap, and a search finds names and parties.
func TestOverview(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	a := s.Address()
	mustPost(t, a, "/v1/acquire", `{"resource":"z-oldest","ttl":"10m"}`)
	mustPost(t, a, "/v1/acquire", `{"resource":"queue","ttl":"10m"}`)
	client, ctx := pb.NewLeaseServiceClient(dial(t, a)), testContext(t)
	for range 2 {
		go func() { _, _ = client.Acquire(ctx, &pb.AcquireRequest{Resource: "queue", Wait: "10m"}) }() // until the test ends
	}
	mustPost(t, a, "/v1/report-refusal", `{"resource":"refused","gate":"sql"}`)
	for i := range 30 {
		mustPost(t, a, "/v1/acquire", fmt.Sprintf(`{"resource":"many/%02d","ttl":"10m","shared":true}`, i))
	}
	for range 8 {
		mustPost(t, a, "/v1/acquire", `{"resource":"many/00","ttl":"10m","shared":true}`)
	}
	mustPost(t, a, "/v1/acquire", `{"resource":"permits","ttl":"10m","permits":1,"holder":"a-holder"}`)
	go func() { // until the test ends
		_, _ = client.Acquire(ctx, &pb.AcquireRequest{Resource: "permits", Permits: 1, Wait: "10m", Holder: "a-waiter"})
	}()
	overview := func(r *pb.OverviewRequest) *pb.OverviewResponse {
		stream, err := client.Overview(testContext(t), r)
		require.NoError(t, err)
		response, err := stream.Recv()
		require.NoError(t, err)
		return response
	}
	eventually(t, "a scan has seen all locks", func() bool {
		r := overview(&pb.OverviewRequest{})
		return r.TotalLocks == 33 && r.TotalWaiters == 3 && r.TotalHolders == 41
	})
	eventually(t, "the lock with the most grants is first", func() bool { // rates decay within seconds
		mustPost(t, a, "/v1/release", leaseName(mustPost(t, a, "/v1/acquire", `{"resource":"busy","ttl":"10m"}`)))
		locks := overview(&pb.OverviewRequest{Sort: "rate"}).Locks
		require.True(t, slices.IsSortedFunc(locks, func(a, b *pb.LockOverview) int {
			return cmp.Compare(b.GrantsPerSecond, a.GrantsPerSecond)
		}))
		return locks[0].Lock.Resource == "busy" && locks[0].GrantsPerSecond > 0
	})
	eventually(t, "a scan has seen that the lock is free", func() bool {
		return overview(&pb.OverviewRequest{}).TotalLocks == 33
	})
	for sort, first := range map[string]string{"": "many/00", "name": "many/00", "queue": "queue", "held": "z-oldest",
		"refused": "refused"} {
		require.Equal(t, first, overview(&pb.OverviewRequest{Sort: sort}).Locks[0].Lock.Resource, sort)
	}
	top := overview(&pb.OverviewRequest{Sort: "queue"}).Locks[0]
	require.EqualValues(t, 2, top.Waiters)
	require.Len(t, top.Lock.Waiters, 2)
	many := overview(&pb.OverviewRequest{Prefix: "many/"}).Locks[0]
	require.EqualValues(t, 9, many.Holders)
	require.Less(t, len(many.Lock.Holders), 9)
	seen := map[string]bool{}
	for offset := int32(0); offset < 33; offset += 10 {
		for _, l := range overview(&pb.OverviewRequest{Offset: offset, Limit: 10}).Locks {
			require.False(t, seen[l.Lock.Resource])
			seen[l.Lock.Resource] = true
		}
	}
	require.Len(t, seen, 33)
	for text, want := range map[string][]string{"any/0": names("many/%02d", 10), "hol": {"permits"}, "ait": {"permits"},
		"ANY/0": names("many/%02d", 10), "Hol": {"permits"}, "hole": nil} {
		r := overview(&pb.OverviewRequest{Search: text})
		var found []string
		for _, l := range r.Locks {
			found = append(found, l.Lock.Resource)
		}
		require.Equal(t, want, found, text)
		require.EqualValues(t, len(want), r.Listed, text)
		require.EqualValues(t, 33, r.TotalLocks, "a search does not change the totals")
	}
	require.EqualValues(t, 1, overview(&pb.OverviewRequest{Search: "permits"}).Locks[0].Lock.Permits)
	require.Empty(t, overview(&pb.OverviewRequest{Mode: "efficiency"}).Locks)
	require.NotContains(t, seen, "busy", "a free lock is listed only by rate")
}
