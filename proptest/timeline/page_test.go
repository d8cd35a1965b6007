package timeline_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/property"
	"github.com/leased-project/leased/proptest/timeline"
)

func at(ms int, kind property.Kind, who string, token fencing.Token) property.Event {
	return property.Event{At: time.Duration(ms) * time.Millisecond, Kind: kind, Who: who, Resource: "account/7", Token: token, Attempt: property.Attempt(who)}
}

func op(e property.Event, op, seen, version uint64) property.Event {
	e.Op, e.Seen, e.Version, e.Attempt = op, seen, version, ""
	return e
}

// lostUpdate returns a history with a paused holder and no gate, and its violation.
func lostUpdate(t *testing.T) ([]property.Event, *property.Violation) {
	t.Helper()
	events := []property.Event{
		at(0, property.Requested, "alice", 0), at(3, property.Acquired, "alice", 33),
		{At: 9 * time.Millisecond, Kind: property.Paused, Who: "alice", Note: "SIGSTOP"},
		at(11, property.Requested, "bob", 0),
		{At: 900 * time.Millisecond, Kind: property.Fault, Who: "node <1>", Note: "killed & restarted"},
		at(2011, property.Acquired, "bob", 34),
		op(at(2015, property.Sent, "bob", 34), 1, 0, 0), op(at(2016, property.Wrote, "", 34), 1, 0, 1), op(at(2017, property.Acknowledged, "bob", 34), 1, 0, 0),
		at(2018, property.Ended, "bob", 34),
		{At: 2500 * time.Millisecond, Kind: property.Resumed, Who: "alice"},
		op(at(2501, property.Sent, "alice", 33), 2, 0, 0), op(at(2502, property.Wrote, "", 33), 2, 0, 1),
		op(at(2503, property.Acknowledged, "alice", 33), 2, 0, 0), at(2504, property.Ended, "alice", 33),
		{At: 2600 * time.Millisecond, Kind: property.Healed},
	}
	checker := property.NewChecker("test")
	var first *property.Violation
	for _, e := range events {
		var v *property.Violation
		if errors.As(checker.Observe(e), &v) && first == nil {
			first = v
		}
	}
	require.NotNil(t, first)
	return events, first
}

// refused returns the same history with a gate.
func refused() []property.Event {
	return []property.Event{
		at(0, property.Requested, "alice", 0), at(3, property.Acquired, "alice", 33), at(4, property.Entered, "", 33),
		{At: 9 * time.Millisecond, Kind: property.Paused, Who: "alice"},
		at(11, property.Requested, "bob", 0), at(2011, property.Acquired, "bob", 34), at(2012, property.Entered, "", 34),
		op(at(2015, property.Sent, "bob", 34), 1, 0, 0), op(at(2016, property.Wrote, "", 34), 1, 0, 1), op(at(2017, property.Acknowledged, "bob", 34), 1, 0, 0),
		{At: 2500 * time.Millisecond, Kind: property.Resumed, Who: "alice"},
		op(at(2501, property.Sent, "alice", 33), 2, 0, 0), op(at(2502, property.Stale, "", 33), 2, 0, 0), op(at(2503, property.Rejected, "alice", 33), 2, 0, 0),
		at(2504, property.Ended, "alice", 33), at(2505, property.Found, "", 0),
	}
}

// elements counts the elements of the drawings by name and class, and returns their
// text. The drawings must be well-formed.
func elements(t *testing.T, page string) (count map[string]int, text string) {
	t.Helper()
	count = map[string]int{}
	_, rest, _ := strings.Cut(page, "<section>")
	for svg := range strings.SplitSeq(rest, "<svg") {
		body, _, found := strings.Cut(svg, "</svg>")
		if !found {
			continue
		}
		decoder := xml.NewDecoder(strings.NewReader("<svg" + body + "</svg>"))
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			switch x := token.(type) {
			case xml.StartElement:
				class := ""
				for _, a := range x.Attr {
					if a.Name.Local == "class" {
						class = strings.TrimSpace(a.Value)
					}
				}
				count[strings.TrimSpace(x.Name.Local+" "+class)]++
			case xml.CharData:
				text += string(x) + "|"
			}
		}
	}
	return count, text
}

func TestLostUpdateIsRed(t *testing.T) {
	events, bad := lostUpdate(t)
	var page bytes.Buffer
	require.NoError(t, timeline.Write(&page, "lost <update>", events, bad))
	count, text := elements(t, page.String())
	require.Equal(t, 5, count["path lifeline"], "service, node, two clients, storage")
	require.Equal(t, 3, count["path message"], "two acquires and one valid write")
	require.Equal(t, 1, count["path message bad"])
	require.Equal(t, 1, count["circle wrote bad"])
	require.Equal(t, 1, count["circle wrote"])
	require.Equal(t, 1, count["rect pause"])
	require.Equal(t, 1, count["rect lease hue0"])
	require.Equal(t, 1, count["rect lease hue1"])
	for _, label := range []string{"alice", "bob", "lock service", "node <1>", "killed & restarted", "token 33", "write, token 34", "SIGSTOP", "all faults repaired"} {
		require.Contains(t, text, label)
	}
	require.Contains(t, page.String(), "Violated: "+string(bad.Property))
	require.Contains(t, page.String(), "<title>lost &lt;update&gt;</title>")
	require.NotContains(t, page.String(), "<1>")
	for _, outside := range []string{"<script", "http:", "https:", "src=", "@import", "url("} {
		require.NotContains(t, page.String(), outside)
	}
}

func TestRefusedWriteIsMarked(t *testing.T) {
	var page bytes.Buffer
	lost, bad := lostUpdate(t)
	require.NoError(t, timeline.WritePage(&page, "both", timeline.Section{Title: "first", Events: lost, Bad: []*property.Violation{bad}},
		timeline.Section{Title: "second", Note: "a & b", Events: refused()}))
	count, text := elements(t, page.String())
	require.Equal(t, 1, count["path stale"])
	require.Equal(t, 1, count["path message warn"])
	require.Equal(t, 1, count["path message answer warn"])
	require.Equal(t, 1, count["circle wrote bad"])
	require.Contains(t, text, "refused: token 33 is stale")
	require.Contains(t, text, "enter, token 34")
	require.Contains(t, page.String(), "<p>a &amp; b</p>")
}

func TestEmptyHistory(t *testing.T) {
	var page bytes.Buffer
	require.NoError(t, timeline.Write(&page, "empty", nil))
	count, _ := elements(t, page.String())
	require.Equal(t, 1, count["path lifeline"])
}

// Every kind of event can be drawn, also with processes that have no other events.
func TestEveryKind(t *testing.T) {
	var events []property.Event
	for k := property.Requested; k <= property.Restored; k++ {
		events = append(events, property.Event{At: time.Duration(k), Kind: k, Who: "x", Resource: "r", Attempt: "a", Token: 1, Op: uint64(k)}, property.Event{Kind: k})
	}
	var page bytes.Buffer
	require.NoError(t, timeline.Write(&page, "all", events, &property.Violation{Event: events[0]}))
	elements(t, page.String())
}

func TestExcerpt(t *testing.T) {
	events, bad := lostUpdate(t)
	other := at(2501, property.Requested, "carol", 0)
	other.Resource = "else"
	events = append(events[:9], append([]property.Event{other, {Kind: property.Paused, Who: "carol"}}, events[9:]...)...)
	part := timeline.Excerpt(events, bad.Event, 4)
	require.Contains(t, part, bad.Event)
	require.NotContains(t, part, other)
	require.Equal(t, property.Acquired, part[0].Kind, "the grant of the lease that it was written under")
	require.Equal(t, "alice", part[0].Who)
	require.Equal(t, property.Paused, part[1].Kind, "and why the write was late")
	require.Equal(t, property.Healed, part[len(part)-1].Kind)
	for _, e := range part {
		require.NotEqual(t, "carol", e.Who)
	}
}
