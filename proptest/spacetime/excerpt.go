package spacetime

import "github.com/leased-project/leased/proptest/promise"

// after is how many events an Excerpt goes on with.
const after = 6

// Excerpt is the part of a history that explains one of its events: about n of
// the events before it that concern the same resource, with what was done to
// the parties meanwhile, and a few after it.
func Excerpt(events []promise.Event, of promise.Event, n int) []promise.Event {
	at := len(events) - 1
	for i, e := range events {
		if e == of {
			at = i
			break
		}
	}
	concerns := func(e promise.Event) bool { return of.Resource == "" || e.Resource == "" || e.Resource == of.Resource }
	first := at
	for kept := 0; first > 0 && kept < n; first-- {
		if concerns(events[first-1]) {
			kept++
		}
	}
	parties, tokens := map[string]bool{}, map[grantKey]bool{{of.Resource, of.Token}: true}
	for i := first; i < len(events) && i <= at+after; i++ {
		if e := events[i]; e.Resource != "" && concerns(e) {
			parties[e.Who], tokens[grantKey{e.Resource, e.Token}] = true, true
		}
	}
	// How the leases came to be, however long ago.
	var part []promise.Event
	for i := range first {
		e := events[i]
		if e.Kind == promise.Told && tokens[grantKey{e.Resource, e.Token}] {
			part = append(part, e)
			parties[e.Who] = true
		}
		if e.Kind == promise.Paused && parties[e.Who] && !resumed(events[i:first], e.Who) {
			part = append(part, e)
		}
	}
	for i := first; i < len(events) && i <= at+after; i++ {
		e := events[i]
		if concerns(e) && (e.Resource != "" || e.Who == "" || parties[e.Who] || i == at) {
			part = append(part, e)
		}
	}
	return part
}

func resumed(events []promise.Event, who string) bool {
	for _, e := range events {
		if e.Kind == promise.Resumed && e.Who == who {
			return true
		}
	}
	return false
}
