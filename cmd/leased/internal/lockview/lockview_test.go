package lockview_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/lockview"
	"github.com/leased-project/leased/cmd/leased/internal/terminal"
)

var now = time.Date(2026, 11, 16, 2, 31, 7, 0, time.UTC)

func lock(name, holder, age string, waiters ...string) *pb.LockOverview {
	l := &pb.LockOverview{Lock: &pb.Lock{Resource: name, Mode: "correctness"}, Waiters: int32(len(waiters))}
	if holder != "" {
		l.Lock.Holders = []*pb.Party{{Holder: holder, Token: 7, Age: age, TtlLeft: "8.5s"}}
	}
	for _, w := range waiters {
		l.Lock.Waiters = append(l.Lock.Waiters, &pb.Party{Holder: w})
	}
	return l
}

func cluster() *pb.ClusterStatusResponse {
	return &pb.ClusterStatusResponse{Members: []*pb.MemberStatus{
		{Id: "n1", Status: &pb.StatusResponse{Id: "n1", Serves: true, Term: 4}},
		{Id: "n2", Status: &pb.StatusResponse{Id: "n2", Term: 4}},
		{Id: "n3", Error: "connection refused"},
	}}
}

func overview(locks ...*pb.LockOverview) *pb.OverviewResponse {
	return &pb.OverviewResponse{Member: "n1", Locks: locks, TotalLocks: int64(len(locks)), TotalHolders: 2,
		TotalWaiters: 3, GrantsPerSecond: 12.34, Refused: 5}
}

func screen(v *lockview.View, width, height int) []string {
	var texts []string
	for _, l := range v.Lines(width, height, now) {
		texts = append(texts, l.Text)
	}
	return texts
}

func TestTopScreen(t *testing.T) {
	t.Parallel()
	busy := lock("account/1001", "checkout-1", "400ms")
	busy.GrantsPerSecond, busy.Refused = 2.5, 5
	v := &lockview.View{Sort: "queue", Interval: time.Second}
	v.Update(lockview.Update{Overview: overview(lock("deploy/production", "deploy-bot", "2h13m5s", "ann@laptop",
		"hotfix-812", "x"), busy), Cluster: cluster(), Time: now})
	got := screen(v, 80, 24)
	require.Len(t, got, 24)
	require.Equal(t, []string{
		"leased top: n1 leads in term 4, 2 of 3 members answer; down: n3         02:31:07",
		"2 locks, 2 holders, 3 waiters; 12.3 grants/s; 5 refused writes",
		"[1 queue]  2 held  3 rate  4 refused  5 name                            1-2 of 2",
	}, got[:3])
	require.Regexp(t, `^LOCK +MODE +HOLDER +HELD +LEFT +WAIT +NEXT +RATE +REFUSED$`, got[3])
	require.Regexp(t, `^deploy/production +corr +deploy-bot +2h13m +8s +3 +ann.*$`, got[4])
	require.Regexp(t, `^account/1001 +corr +checkout-1 +0s +8s +0 +2.5 +5$`, got[5])
	require.Contains(t, got[23], "q quit")
	require.Regexp(t, `^deploy/production .* 3 +ann@laptop$`, screen(v, 100, 24)[4])
	for width := 1; width < 200; width += 7 {
		for height := 1; height < 40; height += 3 {
			for _, line := range screen(v, width, height) {
				require.LessOrEqual(t, terminal.Width(line), max(width, 100), "the screen cuts longer lines")
			}
		}
	}
}

func TestTroubleIsShown(t *testing.T) {
	t.Parallel()
	v := &lockview.View{Sort: "queue", Interval: time.Second}
	o := overview(lock("a", "b", "1s"))
	o.Missing = "2 of 5 Redis nodes answered"
	v.Update(lockview.Update{Overview: o, Time: now.Add(-time.Minute),
		Problem: "no leader; below is the state of one member"})
	got := strings.Join(screen(v, 100, 24), "\n")
	require.Contains(t, got, "no leader; below is the state of one member")
	require.Contains(t, got, "locks in efficiency mode are missing: 2 of 5 Redis nodes answered")
	v.Update(lockview.Update{})
	require.Contains(t, strings.Join(screen(v, 100, 24), "\n"), "no update from the service for 1m00s")
}

// When no member answers, the header says so and hides the last known leader. A member that
// has not applied its log yet is marked as well.
func TestOldStateIsMarked(t *testing.T) {
	t.Parallel()
	v := &lockview.View{Sort: "queue", Interval: time.Second}
	o := overview(lock("a", "b", "1s"))
	o.Missing = "first line\nsecond line"
	v.Update(lockview.Update{Overview: o, Cluster: cluster(), Time: now.Add(-7 * time.Second)})
	require.Contains(t, screen(v, 80, 24)[0], "n1 leads in term 4")
	require.Contains(t, strings.Join(screen(v, 80, 24), "\n"), "are missing: first line")
	require.NotContains(t, strings.Join(screen(v, 80, 24), "\n"), "second")
	v.Update(lockview.Update{Problem: "no member can be reached; retrying", Time: now})
	got := screen(v, 80, 24)
	require.Contains(t, got[0], "no member answers; the state below is from 02:31:00")
	require.NotContains(t, strings.Join(got, "\n"), "leads")

	behind := &pb.ClusterStatusResponse{Members: []*pb.MemberStatus{{Id: "n1",
		Status: &pb.StatusResponse{Id: "n1", AppliedIndex: 3, LastIndex: 40}}}}
	v.Update(lockview.Update{Overview: overview(), Cluster: behind, Time: now})
	require.Contains(t, strings.Join(screen(v, 100, 24), "\n"), "n1 has applied its log only up to entry 3 of 40: "+
		"locks are missing")
	behind.Members[0].Status.Serves = true
	require.NotContains(t, strings.Join(screen(v, 100, 24), "\n"), "applied")
}

// Names that clients choose cannot change the screen.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	hostile := lock("\x1b[2J"+strings.Repeat("日", 200), "\u202eeve\r\n", "1s", "\x1b]0;title\x07")
	hostile.Lock.Holders[0].User = "\u200bann"
	v := &lockview.View{Sort: "queue", Prefix: "\x1b[31m"}
	v.Update(lockview.Update{Overview: overview(hostile), Problem: "\x1b[31m", Time: now})
	for _, line := range screen(v, 120, 24) {
		require.Equal(t, terminal.Clean(line), line)
		require.LessOrEqual(t, terminal.Width(line), 120)
	}
	var c lockview.Changes
	for _, line := range append(c.Lines(overview(hostile), now),
		lockview.Sections(nil, "\x1b", []lockview.Section{{Sort: "held", Overview: overview(hostile)}}, 0)...) {
		require.Equal(t, terminal.Clean(line), line)
	}
}

func many(n int) *pb.OverviewResponse {
	var locks []*pb.LockOverview
	for i := range n {
		locks = append(locks, lock(fmt.Sprintf("lock/%03d", i), "h", "1s"))
	}
	return overview(locks...)
}

func TestKeys(t *testing.T) {
	t.Parallel()
	v := &lockview.View{Sort: "queue", Interval: time.Second}
	v.Update(lockview.Update{Overview: many(50), Time: now})
	screen(v, 80, 24)
	require.Equal(t, lockview.Redraw, v.Key(terminal.Down))
	require.Contains(t, screen(v, 80, 24)[4], "lock/001")
	require.Equal(t, lockview.Redraw, v.Key(terminal.End))
	require.Contains(t, screen(v, 80, 24)[22], "lock/049")
	require.Equal(t, lockview.Redraw, v.Key(terminal.Home))

	require.Equal(t, lockview.Request, v.Key('2'))
	require.Equal(t, "held", v.Request().Sort)
	require.Equal(t, lockview.Request, v.Key('s'))
	require.Equal(t, "rate", v.Request().Sort)

	require.Equal(t, lockview.Redraw, v.Key('p'))
	v.Update(lockview.Update{Overview: overview(lock("new", "h", "1s")), Time: now})
	require.NotContains(t, strings.Join(screen(v, 80, 24), "\n"), "new ")
	require.Contains(t, strings.Join(screen(v, 80, 24), "\n"), "PAUSED")
	v.Key('p')
	require.Contains(t, strings.Join(screen(v, 80, 24), "\n"), "new ")

	v.Key('/')
	for _, k := range "dep/x" {
		require.Equal(t, lockview.Redraw, v.Key(terminal.Key(k)))
	}
	v.Key(terminal.Backspace)
	require.Contains(t, screen(v, 80, 24)[23], "prefix: dep/_")
	require.Equal(t, lockview.Request, v.Key(terminal.Enter))
	require.Equal(t, "dep/", v.Request().Prefix)
	v.Key('/')
	v.Key('q') // a character of the prefix
	v.Key(terminal.Escape)
	require.Equal(t, "dep/", v.Request().Prefix)

	v.Key('h')
	require.Contains(t, strings.Join(screen(v, 80, 24), "\n"), "any key closes this help")
	require.Equal(t, lockview.Redraw, v.Key('q'))
	require.Equal(t, lockview.Quit, v.Key('q'))
	require.Equal(t, lockview.Redraw, v.Key('z'))
	require.Equal(t, lockview.Quit, v.Key(terminal.Closed))
	require.Equal(t, lockview.Redraw, v.Key(terminal.Resized))
}

// Scrolling past the locks that were received requests others.
func TestScrollRequests(t *testing.T) {
	t.Parallel()
	v := &lockview.View{Sort: "name", Interval: time.Second}
	o := many(119)
	o.TotalLocks = 10_000
	v.Update(lockview.Update{Overview: o, Time: now})
	screen(v, 80, 24)
	require.Equal(t, int32(0), v.Request().Offset)
	for range 99 {
		require.Equal(t, lockview.Redraw, v.Key(terminal.Down))
		require.Len(t, screen(v, 80, 24), 24)
	}
	require.Contains(t, screen(v, 80, 24)[4], "lock/099")
	require.Equal(t, lockview.Request, v.Key(terminal.Down))
	require.Equal(t, int32(100), v.Request().Offset)
	require.GreaterOrEqual(t, v.Request().Limit, int32(100+19))
	require.NotEmpty(t, screen(v, 80, 24))
	require.Equal(t, lockview.Request, v.Key(terminal.End))
	require.Equal(t, int32(9900), v.Request().Offset)
	require.NotEmpty(t, screen(v, 80, 24))
}

func TestNarrowScreen(t *testing.T) {
	t.Parallel()
	v := &lockview.View{Sort: "name"}
	v.Update(lockview.Update{Overview: overview(lock("a", "h", "3h"),
		&pb.LockOverview{Lock: &pb.Lock{Resource: "b", Mode: "efficiency", Delayed: true}}), Time: now})
	got := screen(v, 60, 10)
	require.Len(t, got, 10)
	require.Contains(t, got[1], "2 locks")
	require.Regexp(t, `^a +corr +h +7 +3h00m +8s +0$`, got[4])
	require.Regexp(t, `^b +eff +\(lock-delay\) +- +0$`, got[5])
}

func TestSections(t *testing.T) {
	t.Parallel()
	o := overview(lock("deploy/production", "deploy-bot", "49h", "ann"), lock("b", "h", "1s"))
	got := lockview.Sections(cluster(), "", []lockview.Section{{"queue", o}, {"held", o}, {"rate", o}}, 0)
	text := strings.Join(got, "\n")
	require.Contains(t, text, "n1 leads in term 4")
	require.Regexp(t, `longest queues:\nLOCK .*\ndeploy/production .* 2d01h .* ann\n\nlongest holders:`, text)
	require.Regexp(t, `longest holders:\n.*\ndeploy/production .*\nb `, text)
	require.Contains(t, text, "busiest locks:\n  none")
}

func TestChanges(t *testing.T) {
	t.Parallel()
	var c lockview.Changes
	require.Equal(t, []string{"2026-11-16T02:31:07Z  a  correctness  h  held 1s  waiters 1  token 7  next w"},
		c.Lines(overview(lock("a", "h", "1s", "w")), now))
	require.Empty(t, c.Lines(overview(lock("a", "h", "2s", "w")), now), "only the age differs")
	require.Equal(t, []string{"2026-11-16T02:31:07Z  a  correctness  h  held 3s  waiters 0  token 7"},
		c.Lines(overview(lock("a", "h", "3s")), now))
	fast := lock("fast", "h", "1s")
	fast.Lock.Mode = "efficiency"
	require.Len(t, c.Lines(overview(lock("a", "h", "4s"), fast), now), 1)
	missing := overview()
	missing.Missing = "1 of 3 Redis nodes answered"
	require.Equal(t, []string{"2026-11-16T02:31:07Z  a  gone"}, c.Lines(missing, now))
	require.Empty(t, c.Lines(overview(fast), now), "nothing has changed")
	require.Equal(t, []string{"2026-11-16T02:31:07Z  fast  gone"}, c.Lines(overview(), now))
}

func TestAge(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "-", "x": "-", "900ms": "0s", "59.9s": "59s", "61s": "1m01s",
		"2h13m5s": "2h13m", "100h": "4d04h", "-1s": "0s"} {
		require.Equal(t, want, lockview.Age(text), text)
	}
}
