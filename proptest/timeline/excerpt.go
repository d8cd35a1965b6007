package timeline

import "github.com/leased-project/leased/proptest/property"

// after is the number of events that an Excerpt keeps after the explained one.
const after = 6

// Excerpt returns the part of a history that explains one of its events: about n
// earlier events of the same resource, the faults of the processes concerned, and a
// few later events.
func Excerpt(events []property.Event, of property.Event, n int) []property.Event {
	at := len(events) - 1
	for i, e := range events {
		if e == of {
			at = i
			break
		}
	}
	concerns := func(e property.Event) bool { return of.Resource == "" || e.Resource == "" || e.Resource == of.Resource }
	first := at
	for kept := 0; first > 0 && kept < n; first-- {
		if concerns(events[first-1]) {
			kept++
		}
	}
	processes, tokens := map[string]bool{}, map[grantKey]bool{{of.Resource, of.Token}: true}
	for i := first; i < len(events) && i <= at+after; i++ {
		if e := events[i]; e.Resource != "" && concerns(e) {
			processes[e.Who], tokens[grantKey{e.Resource, e.Token}] = true, true
		}
	}
	// The grants of the leases concerned, however old.
	var part []property.Event
	for i := range first {
		e := events[i]
		if e.Kind == property.Acquired && tokens[grantKey{e.Resource, e.Token}] {
			part = append(part, e)
			processes[e.Who] = true
		}
		if e.Kind == property.Paused && processes[e.Who] && !resumed(events[i:first], e.Who) {
			part = append(part, e)
		}
	}
	for i := first; i < len(events) && i <= at+after; i++ {
		e := events[i]
		if concerns(e) && (e.Resource != "" || e.Who == "" || processes[e.Who] || i == at) {
			part = append(part, e)
		}
	}
	return part
}

func resumed(events []property.Event, who string) bool {
	for _, e := range events {
		if e.Kind == property.Resumed && e.Who == who {
			return true
		}
	}
	return false
}
