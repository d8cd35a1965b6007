package lockview

import (
	"fmt"
	"maps"
	"slices"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
)

// Section is one list of a page for scripts.
type Section struct {
	Sort     string
	Overview *pb.OverviewResponse
}

// Sections returns a page of text: the cluster, the totals, and the lists. Lists by
// queue, rate and refused writes leave out the locks that have none. A width of 0 means
// that lines may be of any length.
func Sections(cluster *pb.ClusterStatusResponse, problem string, sections []Section, width int) []string {
	first := sections[0].Overview
	v := View{shown: Update{Overview: first, Cluster: cluster}, last: Update{Problem: problem}}
	lines := []string{clusterText(cluster, first), totalsText(first)}
	for _, trouble := range v.troubles(time.Time{}) {
		lines = append(lines, trouble.Text)
	}
	for _, s := range sections {
		lines = append(lines, "", sortTitles[s.Sort]+":")
		locks := relevant(s)
		if len(locks) == 0 {
			lines = append(lines, "  none")
			continue
		}
		lines = append(lines, table(locks, width)...)
	}
	return lines
}

// relevant returns the locks that belong to a section.
func relevant(s Section) (locks []*pb.LockOverview) {
	for _, l := range s.Overview.GetLocks() {
		switch {
		case s.Sort == "queue" && l.Waiters == 0:
		case s.Sort == "refused" && l.Refused == 0:
		case s.Sort == "rate" && l.GrantsPerSecond < 0.05:
		case s.Sort == "held" && len(l.GetLock().GetHolders()) == 0:
		default:
			locks = append(locks, l)
		}
	}
	return locks
}

// Changes turns overviews into lines for an output that is not a terminal: each lock
// whose holder, queue or refused writes have changed gets a line.
type Changes struct{ known map[string]state }

// state is what Changes reports of a lock; ages and times left always differ.
type state struct{ mode, holder, token, waiters, next, refused string }

// Lines returns the lines for the next overview. A lock that has left the list is "gone", unless the overview misses
// the locks in its mode.
func (c *Changes) Lines(o *pb.OverviewResponse, now time.Time) (lines []string) {
	before := c.known
	c.known = map[string]state{}
	clock := now.Format(time.RFC3339)
	for _, l := range o.GetLocks() {
		row := newRow(l)
		name := row[cellLock]
		old, known := before[name]
		now := state{l.GetLock().GetMode(), row[cellHolder], row[cellToken], row[cellWaiters], row[cellNext],
			row[cellRefused]}
		if c.known[name] = now; known && old == now {
			continue
		}
		text := fmt.Sprintf("%s  %s  %s  %s  held %s  waiters %s", clock, name, now.mode, now.holder, row[cellHeld],
			now.waiters)
		for _, part := range []struct{ name, value string }{{"token", now.token}, {"next", now.next},
			{"refused", now.refused}} {
			if part.value != "" {
				text += "  " + part.name + " " + part.value
			}
		}
		lines = append(lines, text)
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		_, still := c.known[name]
		switch {
		case still:
		case o.GetMissing() != "" && before[name].mode == "efficiency":
			c.known[name] = before[name]
		default:
			lines = append(lines, fmt.Sprintf("%s  %s  gone", clock, name))
		}
	}
	return lines
}
