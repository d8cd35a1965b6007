package dashboard_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/testserver"
)

// leaderOf returns the member that leads, or nil.
func leaderOf(members []*member) *member {
	for _, m := range members {
		if m.node.Leads() {
			return m
		}
	}
	return nil
}

// votes reports whether a member knows that all three members vote.
func votes(m *member) bool {
	n := 0
	for _, other := range m.node.Members() {
		if other.Voter {
			n++
		}
	}
	return n == 3
}

// The page of a follower survives the loss of the leader. Without a majority it shows the
// state of its own member, and says so.
func TestLostLeaders(t *testing.T) {
	t.Parallel()
	steady := func(c *server.Config) { // while the browser starts
		c.Raft.HeartbeatTimeout = 2 * time.Second
	}
	first := startMember(t, "n1", "", steady)
	members := []*member{first, startMember(t, "n2", first.Address(), steady),
		startMember(t, "n3", first.Address(), steady)}
	for _, m := range members {
		testserver.Eventually(t, "all members vote", func() bool { return votes(m) })
	}
	first.hold(t, "failover/a", "ann")
	p := open(t, members[2], "#/")
	p.untilRows("failover/a")
	p.shows("#connection", "live")

	first.stop()
	testserver.Eventually(t, "there is another leader", func() bool { return leaderOf(members[1:]) != nil })
	p.until(`document.querySelector("#connection").innerText === "live" &&
		!document.querySelector("#member").innerText.includes("n1")`)
	p.untilRows("failover/a")
	value[bool](p, `(location.hash = "#/cluster", true)`)
	p.shows(".cluster", "unreachable")
	p.shows(".cluster", first.Address()+" does not answer (connection refused)")
	p.until(`document.querySelector("#member").innerText.startsWith("served by ")`)
	p.until(`document.querySelectorAll(".cluster tbody tr").length >= 3`)

	members[1].stop()
	p.shows("#banner", "No leader: showing the state of member n3, which may be old.")
	value[bool](p, `(location.hash = "#/", true)`)
	p.untilRows("failover/a")
	p.shows("#banner", "No leader")

	members[2].stop()
	p.shows("#banner", "The connection to the service is lost")
	p.shows("#connection", "reconnecting")
	require.Contains(t, value[[]string](p, `[...document.querySelectorAll("#banner a")].map((link) => link.href)`),
		"http://"+members[1].Address()+"/#/", "the other members")
	require.Equal(t, []string{"failover/a"}, p.rows(), "the last state stays")
}

// After a restore, the page tells that the leases have ended, and that the record is new.
func TestRestoredSnapshot(t *testing.T) {
	t.Parallel()
	m := startMember(t, "n1", "")
	var snapshot bytes.Buffer
	_, err := m.node.SaveSnapshot(testserver.Context(t), &snapshot)
	require.NoError(t, err)
	m.hold(t, "restore/a", "ann")
	p := open(t, m, lockPage("restore/a"))
	p.shows(".holder .big", "ann")
	_, err = m.node.RestoreSnapshot(testserver.Context(t), &snapshot)
	require.NoError(t, err)
	p.shows(".lock .free", "Free")
	p.shows(".event.ended", "ann no longer holds the lock")
	p.shows(".lock", "a restored snapshot begins a new record")
}
