package spacetime_test

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
	"github.com/leased-project/leased/proptest/promise"
	"github.com/leased-project/leased/proptest/spacetime"
)

func at(ms int, kind promise.Kind, who string, token fencing.Token) promise.Event {
	return promise.Event{At: time.Duration(ms) * time.Millisecond, Kind: kind, Who: who, Resource: "account/7", Token: token, Attempt: promise.Attempt(who)}
}

func op(e promise.Event, op, seen, version uint64) promise.Event {
	e.Op, e.Seen, e.Version, e.Attempt = op, seen, version, ""
	return e
}

// lostUpdate is the story of a pause, without a gate, and what is wrong with it.
func lostUpdate(t *testing.T) ([]promise.Event, *promise.Violation) {
	t.Helper()
	events := []promise.Event{
		at(0, promise.Asked, "alice", 0), at(3, promise.Told, "alice", 33),
		{At: 9 * time.Millisecond, Kind: promise.Paused, Who: "alice", Note: "SIGSTOP"},
		at(11, promise.Asked, "bob", 0),
		{At: 900 * time.Millisecond, Kind: promise.Fault, Who: "node <1>", Note: "killed & restarted"},
		at(2011, promise.Told, "bob", 34),
		op(at(2015, promise.Sent, "bob", 34), 1, 0, 0), op(at(2016, promise.Wrote, "", 34), 1, 0, 1), op(at(2017, promise.Acknowledged, "bob", 34), 1, 0, 0),
		at(2018, promise.Ended, "bob", 34),
		{At: 2500 * time.Millisecond, Kind: promise.Resumed, Who: "alice"},
		op(at(2501, promise.Sent, "alice", 33), 2, 0, 0), op(at(2502, promise.Wrote, "", 33), 2, 0, 1),
		op(at(2503, promise.Acknowledged, "alice", 33), 2, 0, 0), at(2504, promise.Ended, "alice", 33),
		{At: 2600 * time.Millisecond, Kind: promise.Healed},
	}
	judge := promise.NewJudge("story")
	var first *promise.Violation
	for _, e := range events {
		var v *promise.Violation
		if errors.As(judge.See(e), &v) && first == nil {
			first = v
		}
	}
	require.NotNil(t, first)
	return events, first
}

// refused is the same with a gate.
func refused() []promise.Event {
	return []promise.Event{
		at(0, promise.Asked, "alice", 0), at(3, promise.Told, "alice", 33), at(4, promise.Entered, "", 33),
		{At: 9 * time.Millisecond, Kind: promise.Paused, Who: "alice"},
		at(11, promise.Asked, "bob", 0), at(2011, promise.Told, "bob", 34), at(2012, promise.Entered, "", 34),
		op(at(2015, promise.Sent, "bob", 34), 1, 0, 0), op(at(2016, promise.Wrote, "", 34), 1, 0, 1), op(at(2017, promise.Acknowledged, "bob", 34), 1, 0, 0),
		{At: 2500 * time.Millisecond, Kind: promise.Resumed, Who: "alice"},
		op(at(2501, promise.Sent, "alice", 33), 2, 0, 0), op(at(2502, promise.Stale, "", 33), 2, 0, 0), op(at(2503, promise.Rejected, "alice", 33), 2, 0, 0),
		at(2504, promise.Ended, "alice", 33), at(2505, promise.Found, "", 0),
	}
}

// elements counts what the drawings are made of, by name and class, and takes
// their words. The drawings must be well-formed.
func elements(t *testing.T, page string) (count map[string]int, words string) {
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
				words += string(x) + "|"
			}
		}
	}
	return count, words
}

func TestALostUpdateIsRed(t *testing.T) {
	events, bad := lostUpdate(t)
	var page bytes.Buffer
	require.NoError(t, spacetime.Write(&page, "lost <update>", events, bad))
	count, words := elements(t, page.String())
	require.Equal(t, 5, count["path lifeline"], "service, node, two clients, storage")
	require.Equal(t, 3, count["path message"], "two ask, one writes as it may")
	require.Equal(t, 1, count["path message bad"])
	require.Equal(t, 1, count["circle wrote bad"])
	require.Equal(t, 1, count["circle wrote"])
	require.Equal(t, 1, count["rect pause"])
	require.Equal(t, 1, count["rect lease hue0"])
	require.Equal(t, 1, count["rect lease hue1"])
	for _, text := range []string{"alice", "bob", "lock service", "node <1>", "killed & restarted", "token 33", "write, token 34", "SIGSTOP", "all is well again"} {
		require.Contains(t, words, text)
	}
	require.Contains(t, page.String(), "Broken: "+string(bad.Promise))
	require.Contains(t, page.String(), "<title>lost &lt;update&gt;</title>")
	require.NotContains(t, page.String(), "<1>")
	for _, outside := range []string{"<script", "http:", "https:", "src=", "@import", "url("} {
		require.NotContains(t, page.String(), outside)
	}
}

func TestARefusedWriteIsMarked(t *testing.T) {
	var page bytes.Buffer
	lost, bad := lostUpdate(t)
	require.NoError(t, spacetime.WritePage(&page, "both", spacetime.Section{Title: "first", Events: lost, Bad: []*promise.Violation{bad}},
		spacetime.Section{Title: "second", Note: "a & b", Events: refused()}))
	count, words := elements(t, page.String())
	require.Equal(t, 1, count["path stale"])
	require.Equal(t, 1, count["path message warn"])
	require.Equal(t, 1, count["path message answer warn"])
	require.Equal(t, 1, count["circle wrote bad"])
	require.Contains(t, words, "refused: token 33 is old")
	require.Contains(t, words, "enter, token 34")
	require.Contains(t, page.String(), "<p>a &amp; b</p>")
}

func TestNothingHappened(t *testing.T) {
	var page bytes.Buffer
	require.NoError(t, spacetime.Write(&page, "empty", nil))
	count, _ := elements(t, page.String())
	require.Equal(t, 1, count["path lifeline"])
}

// Every kind can be drawn, with parties that nothing else tells of.
func TestEveryKind(t *testing.T) {
	var events []promise.Event
	for k := promise.Asked; k <= promise.Restored; k++ {
		events = append(events, promise.Event{At: time.Duration(k), Kind: k, Who: "x", Resource: "r", Attempt: "a", Token: 1, Op: uint64(k)}, promise.Event{Kind: k})
	}
	var page bytes.Buffer
	require.NoError(t, spacetime.Write(&page, "all", events, &promise.Violation{Event: events[0]}))
	elements(t, page.String())
}

func TestExcerpt(t *testing.T) {
	events, bad := lostUpdate(t)
	other := at(2501, promise.Asked, "carol", 0)
	other.Resource = "else"
	events = append(events[:9], append([]promise.Event{other, {Kind: promise.Paused, Who: "carol"}}, events[9:]...)...)
	part := spacetime.Excerpt(events, bad.Event, 4)
	require.Contains(t, part, bad.Event)
	require.NotContains(t, part, other)
	require.Equal(t, promise.Told, part[0].Kind, "the lease it was written under")
	require.Equal(t, "alice", part[0].Who)
	require.Equal(t, promise.Paused, part[1].Kind, "and why it came late")
	require.Equal(t, promise.Healed, part[len(part)-1].Kind)
	for _, e := range part {
		require.NotEqual(t, "carol", e.Who)
	}
}
