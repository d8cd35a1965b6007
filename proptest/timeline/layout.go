package timeline

import (
	"cmp"
	"slices"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/property"
)

// The dimensions of a drawing, in pixels.
const (
	leastWidth = 1160
	laneWidth  = 94 // at least
	axisWidth  = 84
	rightWidth = 210 // for the labels beside the storage
	headHeight = 54
	rowHeight  = 22 // between two events
	mostGap    = 44 // added for the time between them
	spread     = 700
	slope      = 8 // of a message whose other end is unknown
)

// The names of a lock service without events of its own, and of an unnamed
// storage.
const (
	serviceName = "lock service"
	storageName = "storage"
)

// role is the role of a process.
type role uint8

const (
	service role = iota
	client
	storage
)

var roleNames = [...]string{"service", "client", "storage"}

// process is a vertical line of the drawing.
type process struct {
	name string
	role role
	x    float64
}

// row is the position of an event.
type row struct {
	y       float64
	bad     bool
	skipped bool // the time before it is shortened
}

// class returns the class of what violates a property.
func (r row) class() string {
	if r.bad {
		return "bad"
	}
	return ""
}

// grantKey identifies a grant.
type grantKey struct {
	resource fencing.Resource
	token    fencing.Token
}

// layout has the position of everything.
type layout struct {
	events    []property.Event
	rows      []row
	processes []*process
	byName    map[string]*process
	holders   map[grantKey]string
	hues      map[fencing.Token]int
	several   bool // more than one resource
	width     float64
	height    float64
}

func newLayout(s Section) *layout {
	events := s.Events
	p := &layout{events: events, byName: map[string]*process{}, holders: map[grantKey]string{}, hues: map[fencing.Token]int{}}
	resources := map[fencing.Resource]bool{}
	for _, e := range events {
		if e.Resource != "" {
			resources[e.Resource] = true
		}
		if e.Kind == property.Acquired {
			p.holders[grantKey{e.Resource, e.Token}] = e.Who
		}
		if _, ok := p.hues[e.Token]; !ok && e.Token != fencing.None {
			p.hues[e.Token] = len(p.hues) % 6
		}
	}
	p.several = len(resources) > 1
	p.placeProcesses()
	p.placeRows(s)
	return p
}

// placeProcesses finds the processes. The service is on the left and the storage on
// the right, so that messages of a client to both do not cross its own line.
func (p *layout) placeProcesses() {
	roles := map[string]role{}
	var names []string
	add := func(name string, r role) {
		if _, ok := roles[name]; !ok {
			names, roles[name] = append(names, name), r
		}
	}
	logged := false
	for _, e := range p.events {
		switch e.Kind {
		case property.Granted, property.Freed, property.Applied:
			logged = logged || e.Kind == property.Granted
			add(e.Who, service)
		case property.Entered, property.Wrote, property.Stale, property.Found:
			add(storageOf(e), storage)
		case property.Requested, property.Acquired, property.Denied, property.Ended, property.Sent, property.Acknowledged, property.Rejected, property.Served:
			if e.Who != "" {
				add(e.Who, client)
			}
		}
	}
	for _, e := range p.events { // processes that only have faults
		if (e.Kind == property.Fault || e.Kind == property.Paused) && e.Who != "" {
			add(e.Who, service)
		}
	}
	if !logged {
		add(serviceName, service)
	}
	for _, r := range []role{service, client, storage} {
		for _, name := range names {
			if roles[name] == r {
				p.byName[name] = &process{name: name, role: r}
				p.processes = append(p.processes, p.byName[name])
			}
		}
	}
	inner := max(leastWidth-axisWidth-rightWidth, float64(len(p.processes))*laneWidth)
	p.width = axisWidth + inner + rightWidth
	for i, who := range p.processes {
		who.x = axisWidth + inner*(float64(i)+.5)/float64(len(p.processes))
		if len(p.processes) > 1 { // the last one near its labels
			who.x = axisWidth + 60 + (inner-80)*float64(i)/float64(len(p.processes)-1)
		}
	}
}

// placeRows gives each event a row. The distance of rows grows with the time between
// them.
func (p *layout) placeRows(s Section) {
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
		p.rows[i].bad = s.Violates(e)
	}
	p.height = y + rowHeight + 14
}

func storageOf(e property.Event) string { return cmp.Or(e.Who, storageName) }

// find returns the index of the first matching event from i on, or -1.
func (p *layout) find(i int, match func(property.Event) bool) int {
	if j := slices.IndexFunc(p.events[i:], match); j >= 0 {
		return i + j
	}
	return -1
}

// findGrant returns the index of the grant of an attempt by the service, or -1.
func (p *layout) findGrant(attempt property.Attempt) int {
	return p.find(0, func(e property.Event) bool { return e.Kind == property.Granted && e.Attempt == attempt })
}

// findStored returns the index of the outcome of an operation at the storage, or -1.
func (p *layout) findStored(op uint64) int {
	return p.find(0, func(e property.Event) bool {
		return (e.Kind == property.Wrote || e.Kind == property.Stale) && e.Op == op
	})
}

// until returns where a bar from an event ends: at the first later event that matches, or at the bottom.
func (p *layout) until(i int, match func(property.Event) bool) float64 {
	if j := p.find(i, match); j >= 0 {
		return p.rows[j].y
	}
	return p.height - 10
}

// serviceProcess returns the line of the service for a message about an attempt: that
// of the node which granted it, if known.
func (p *layout) serviceProcess(attempt property.Attempt) *process {
	if i := p.findGrant(attempt); i >= 0 {
		return p.byName[p.events[i].Who]
	}
	if who := p.byName[serviceName]; who != nil {
		return who
	}
	if len(p.processes) > 0 && p.processes[0].role == service {
		return p.processes[0]
	}
	return nil
}
