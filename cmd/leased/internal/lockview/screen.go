package lockview

import (
	"fmt"
	"strings"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/terminal"
)

// staleAfter is the number of intervals without an update after which a view says so.
const staleAfter = 4

// footer lists the keys.
const footer = "q quit  s or 1-5 sort  / prefix  arrows scroll  p pause  h help"

var helpTexts = []string{
	"",
	"  1 queue     the locks with the longest queues",
	"  2 held      the locks that have been held for the longest time",
	"  3 rate      the locks with the most grants per second",
	"  4 refused   the locks with the most writes that gates refused",
	"  5 name      all locks, sorted by name",
	"  s           the next of these",
	"  /           show only locks whose names start with a prefix; Enter applies it, Esc cancels",
	"  arrows      scroll; also j and k, PgUp and PgDn, Home and End",
	"  p, Space    pause, and continue",
	"  q, Ctrl-C   quit",
	"",
	"  HELD is the age of the oldest lease, LEFT the time until it ends without a renewal.",
	"  WAIT is the number of waiters, and NEXT the first of them. +2 means two more holders.",
	"  RATE is the number of grants per second, REFUSED that of refused writes.",
	"  `leased inspect LOCK` shows all of them, `leased break LOCK --token TOKEN` ends a lease.",
	"",
	"  any key closes this help",
}

// Lines returns the screen.
func (v *View) Lines(width, height int, now time.Time) []terminal.Line {
	const other = 5 // lines that are not locks: the cluster, the totals, the orders, the heading of the table, the keys
	v.page = max(1, height-other-len(v.troubles(now)))
	lines := v.heading(width, now)
	if v.help {
		for _, text := range helpTexts {
			lines = append(lines, terminal.Line{Text: text})
		}
		return lines
	}
	locks := v.visible()
	for i, text := range table(locks, width) {
		style := terminal.Plain
		switch {
		case i == 0:
			style = terminal.Inverse
		case locks[i-1].GetWaiters() > 0:
			style = terminal.Warning
		}
		lines = append(lines, terminal.Line{Text: text, Style: style})
	}
	for len(lines) < height-1 {
		lines = append(lines, terminal.Line{})
	}
	if v.typing {
		return append(lines, terminal.Line{Text: "prefix: " + terminal.Clean(string(v.typed)) + "_", Style: terminal.Bold})
	}
	return append(lines, terminal.Line{Text: footer, Style: terminal.Faint})
}

// visible returns the locks on the screen.
func (v *View) visible() []*pb.LockOverview {
	locks := v.shown.Overview.GetLocks()
	from := v.top - v.shown.Offset
	if from < 0 || from >= len(locks) {
		return nil // another block was requested
	}
	return locks[from:min(from+v.page, len(locks))]
}

// heading returns the lines above the table.
func (v *View) heading(width int, now time.Time) []terminal.Line {
	state := clusterText(v.shown.Cluster, v.shown.Overview)
	if v.lost {
		state = "no member answers; the state below is from " + v.last.Time.Format("15:04:05")
	}
	lines := []terminal.Line{
		{Text: spread("leased top: "+state, now.Format("15:04:05"), width), Style: terminal.Bold},
		{Text: totalsText(v.shown.Overview)}}
	lines = append(lines, v.troubles(now)...)
	return append(lines, terminal.Line{Text: spread(v.sortText(), v.position(), width)})
}

// troubles returns what is wrong with the data on the screen.
func (v *View) troubles(now time.Time) (lines []terminal.Line) {
	if problem := v.last.Problem; problem != "" {
		lines = append(lines, terminal.Line{Text: terminal.Clean(problem), Style: terminal.Alert})
	} else if age := now.Sub(v.last.Time); v.last.Overview != nil && age > staleAfter*max(v.Interval, time.Second) {
		lines = append(lines, terminal.Line{Text: "no update from the service for " + Short(age), Style: terminal.Alert})
	}
	if text := behindText(v.shown.Cluster, v.shown.Overview); text != "" {
		lines = append(lines, terminal.Line{Text: text, Style: terminal.Alert})
	}
	if missing := v.shown.Overview.GetMissing(); missing != "" {
		first, _, _ := strings.Cut(missing, "\n")
		lines = append(lines, terminal.Line{Text: "locks in efficiency mode are missing: " + terminal.Clean(first),
			Style: terminal.Warning})
	}
	return lines
}

// behindText says that the member that answers lacks entries of its own log while there is
// no leader, as after a restart. Without a leader it cannot know which entries are valid.
func behindText(c *pb.ClusterStatusResponse, o *pb.OverviewResponse) string {
	if leader, _ := Leader(c); leader != "" {
		return ""
	}
	for _, m := range c.GetMembers() {
		if s := m.GetStatus(); m.GetId() == o.GetMember() && s.GetAppliedIndex() < s.GetLastIndex() {
			return fmt.Sprintf("%s has applied its log only up to entry %d of %d: locks are missing until there is a leader",
				terminal.Clean(m.Id), s.AppliedIndex, s.LastIndex)
		}
	}
	return ""
}

// Leader returns the id of the leader and its term, or "" and 0 if there is none.
func Leader(c *pb.ClusterStatusResponse) (leader string, term uint64) {
	for _, m := range c.GetMembers() {
		if m.Status.GetServes() && m.Status.GetTerm() >= term {
			leader, term = m.Id, m.Status.GetTerm()
		}
	}
	return leader, term
}

// clusterText describes the members.
func clusterText(c *pb.ClusterStatusResponse, o *pb.OverviewResponse) string {
	if o == nil {
		return "waiting for the first answer"
	}
	if c == nil || len(c.Members) == 0 {
		return "member " + terminal.Clean(o.GetMember())
	}
	leader, term := Leader(c)
	var down []string
	for _, m := range c.Members {
		if m.Error != "" || m.Status == nil {
			down = append(down, terminal.Clean(m.Id))
		}
	}
	text := "no leader"
	if leader != "" {
		text = fmt.Sprintf("%s leads in term %d", terminal.Clean(leader), term)
	}
	text += fmt.Sprintf(", %d of %d members answer", len(c.Members)-len(down), len(c.Members))
	if len(down) > 0 {
		text += "; down: " + strings.Join(down, " ")
	}
	return text
}

func totalsText(o *pb.OverviewResponse) string {
	if o == nil {
		return ""
	}
	return fmt.Sprintf("%s, %s, %s; %.1f grants/s; %s", Count(o.GetTotalLocks(), "lock"),
		Count(o.GetTotalHolders(), "holder"), Count(o.GetTotalWaiters(), "waiter"), o.GetGrantsPerSecond(),
		Count(o.GetRefused(), "refused write"))
}

// Count formats a number of things.
func Count[N int | int32 | int64 | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// sortText shows the orders, with the current one in brackets.
func (v *View) sortText() string {
	var parts []string
	for i, name := range Sorts {
		text := fmt.Sprintf("%d %s", i+1, name)
		if name == v.Sort {
			text = "[" + text + "]"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "  ")
}

// position says which locks the screen shows.
func (v *View) position() string {
	total := v.shown.Overview.GetTotalLocks()
	text := "no locks"
	if n := len(v.visible()); n > 0 {
		text = fmt.Sprintf("%d-%d of %d", v.top+1, v.top+n, total)
	}
	if v.Prefix != "" {
		text = terminal.Clean(v.Prefix) + "*: " + text
	}
	if v.Mode != "" {
		text = v.Mode + ", " + text
	}
	if v.paused {
		text = "PAUSED, " + text
	}
	return text
}

// spread puts two texts at both ends of a line. The left one is cut if they do not fit.
func spread(left, right string, width int) string {
	room := width - terminal.Width(right) - 2
	if room < 1 {
		return terminal.Fit(left, width, false)
	}
	left = terminal.Fit(left, room, false)
	return left + strings.Repeat(" ", room-terminal.Width(left)+2) + right
}
