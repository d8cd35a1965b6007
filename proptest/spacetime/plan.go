package spacetime

import (
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/promise"
)

// The measures of a drawing, in pixels.
const (
	leastWidth = 1160
	laneWidth  = 94 // at least
	axisWidth  = 84
	rightWidth = 210 // for the words beside the storage
	headHeight = 54
	rowHeight  = 22 // between two events
	mostGap    = 44 // that time adds to it
	spread     = 700
	slope      = 8 // of a message whose other end is not told
)

// The lane of a lock service that tells nothing itself, and of a storage
// without a name.
const (
	serviceName = "lock service"
	storageName = "storage"
)

// role is what a party does.
type role uint8

const (
	service role = iota
	client
	storage
)

var roleNames = [...]string{"service", "client", "storage"}

// party is a line of the drawing.
type party struct {
	name string
	role role
	x    float64
}

// row is where an event is drawn.
type row struct {
	y       float64
	bad     bool
	skipped bool // time was drawn shorter before it
}

// grantKey tells whom a token was given to.
type grantKey struct {
	resource fencing.Resource
	token    fencing.Token
}

// plan is where everything goes.
type plan struct {
	events  []promise.Event
	rows    []row
	parties []*party
	byName  map[string]*party
	holders map[grantKey]string
	hues    map[fencing.Token]int
	several bool // more than one resource
	width   float64
	height  float64
}

func newPlan(events []promise.Event, bad []*promise.Violation) *plan {
	p := &plan{events: events, byName: map[string]*party{}, holders: map[grantKey]string{}, hues: map[fencing.Token]int{}}
	resources := map[fencing.Resource]bool{}
	for _, e := range events {
		if e.Resource != "" {
			resources[e.Resource] = true
		}
		if e.Kind == promise.Told {
			p.holders[grantKey{e.Resource, e.Token}] = e.Who
		}
		if _, ok := p.hues[e.Token]; !ok && e.Token != fencing.None {
			p.hues[e.Token] = len(p.hues) % 6
		}
	}
	p.several = len(resources) > 1
	p.cast()
	p.time(bad)
	return p
}

// cast finds the parties. The service stands on the left and the storage on the
// right, so that a client's messages to both do not cross its own line.
func (p *plan) cast() {
	roles := map[string]role{}
	var names []string
	add := func(name string, r role) {
		if _, ok := roles[name]; !ok {
			names, roles[name] = append(names, name), r
		}
	}
	told := false
	for _, e := range p.events {
		switch e.Kind {
		case promise.Granted, promise.Freed, promise.Applied:
			told = told || e.Kind == promise.Granted
			add(e.Who, service)
		case promise.Entered, promise.Wrote, promise.Stale, promise.Found:
			add(storageOf(e), storage)
		case promise.Asked, promise.Told, promise.Refused, promise.Ended, promise.Sent, promise.Acknowledged, promise.Rejected, promise.Served:
			if e.Who != "" {
				add(e.Who, client)
			}
		}
	}
	for _, e := range p.events { // whoever is only ever broken
		if (e.Kind == promise.Fault || e.Kind == promise.Paused) && e.Who != "" {
			add(e.Who, service)
		}
	}
	if !told {
		add(serviceName, service)
	}
	for _, r := range []role{service, client, storage} {
		for _, name := range names {
			if roles[name] == r {
				p.byName[name] = &party{name: name, role: r}
				p.parties = append(p.parties, p.byName[name])
			}
		}
	}
	inner := max(leastWidth-axisWidth-rightWidth, float64(len(p.parties))*laneWidth)
	p.width = axisWidth + inner + rightWidth
	for i, who := range p.parties {
		who.x = axisWidth + inner*(float64(i)+.5)/float64(len(p.parties))
		if len(p.parties) > 1 { // the last one near its words
			who.x = axisWidth + 60 + (inner-80)*float64(i)/float64(len(p.parties)-1)
		}
	}
}

// time gives each event a row. Rows are further apart the more time passes.
func (p *plan) time(bad []*promise.Violation) {
	p.rows = make([]row, len(p.events))
	y := float64(headHeight)
	var span time.Duration
	if len(p.events) > 0 {
		span = max(p.events[len(p.events)-1].At-p.events[0].At, 1)
	}
	for i, e := range p.events {
		y += rowHeight
		if i > 0 {
			gap := float64(e.At-p.events[i-1].At) / float64(span) * spread
			p.rows[i].skipped = gap > mostGap
			y += min(max(gap, 0), mostGap)
		}
		p.rows[i].y = y
		p.rows[i].bad = slices.ContainsFunc(bad, func(v *promise.Violation) bool { return v.Event == e })
	}
	p.height = y + rowHeight + 14
}

func storageOf(e promise.Event) string {
	if e.Who == "" {
		return storageName
	}
	return e.Who
}

// find is the index of the next event from i on that matches, or -1.
func (p *plan) find(i int, match func(promise.Event) bool) int {
	for j := i; j < len(p.events); j++ {
		if match(p.events[j]) {
			return j
		}
	}
	return -1
}

// serviceParty is the line of the service for a message about an attempt: that
// of the node which granted it, if one is known.
func (p *plan) serviceParty(attempt promise.Attempt) *party {
	i := p.find(0, func(e promise.Event) bool { return e.Kind == promise.Granted && e.Attempt == attempt })
	if i >= 0 {
		return p.byName[p.events[i].Who]
	}
	if who := p.byName[serviceName]; who != nil {
		return who
	}
	for _, who := range p.parties {
		if who.role == service {
			return who
		}
	}
	return nil
}
