package timeline

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/property"
)

// drawing is an SVG under construction, in layers from back to front.
type drawing struct {
	*layout
	back, lines, marks, labels strings.Builder
}

// draw returns the SVG of a layout. All texts in it are escaped.
func (p *layout) draw(number int) template.HTML {
	d := &drawing{layout: p}
	d.frame()
	for i, e := range p.events {
		d.event(i, e)
	}
	return template.HTML(fmt.Sprintf("<svg viewBox=\"0 0 %.0[1]f %.0[2]f\" width=\"%.0[1]f\" height=\"%.0[2]f\" role=\"img\" "+
		"aria-labelledby=\"t%[3]d\">\n<title id=\"t%[3]d\">Space-time diagram of %[4]d events</title>\n", p.width, p.height, number, len(p.events)) +
		d.back.String() + d.lines.String() + d.marks.String() + d.labels.String() + "</svg>\n")
}

// frame draws the lines of the processes and the axis.
func (d *drawing) frame() {
	bottom := d.height - 10
	for _, who := range d.processes {
		fmt.Fprintf(&d.back, "<path class=\"lifeline\" d=\"M%.1f %dV%.1f\"/>\n", who.x, headHeight-6, bottom)
		d.text(who.x, 20, "middle", "process", who.name)
		if roleNames[who.role] != who.name {
			d.text(who.x, 36, "middle", "kind", roleNames[who.role])
		}
	}
	const axis = axisWidth - 14
	fmt.Fprintf(&d.back, "<path class=\"axis\" d=\"M%d %dV%.1f\"/>\n", axis, headHeight-6, bottom)
	d.text(axis-6, 36, "end", "time", "time")
	if len(d.events) == 0 {
		return
	}
	span := d.events[len(d.events)-1].At - d.events[0].At
	last := ""
	for i, e := range d.events {
		y := d.rows[i].y
		if label := clock(e.At, span); label != last {
			last = label
			d.text(axis-6, y+4, "end", "time", label)
			fmt.Fprintf(&d.back, "<path class=\"grid\" d=\"M%d %.1fH%.1f\"/>\n", axis, y, d.width-rightWidth)
		}
		if d.rows[i].skipped { // a break in the axis
			middle := (y + d.rows[i-1].y) / 2
			fmt.Fprintf(&d.lines, "<path class=\"axis\" d=\"M%d %.1fl10 -4M%d %.1fl10 -4\"/>\n", axis-5, middle+4, axis-5, middle+9)
		}
	}
}

// clock formats a time on the axis, as precisely as the span requires.
func clock(at, span time.Duration) string {
	switch {
	case span < 20*time.Millisecond:
		return fmt.Sprintf("%.3f ms", float64(at)/1e6)
	case span < 10*time.Minute:
		return fmt.Sprintf("%.3f s", at.Seconds())
	}
	return at.Round(time.Second).String()
}

// event draws one event.
func (d *drawing) event(i int, e property.Event) {
	y := d.rows[i].y
	who := d.byName[e.Who]
	switch e.Kind {
	case property.Requested:
		d.requested(i, e)
	case property.Acquired:
		d.acquired(i, e)
	case property.Denied:
		if from := d.serviceProcess(e.Attempt); from != nil && who != nil {
			d.arrow(from.x, y-slope, who.x, y, "answer", "not granted"+d.about(e))
		}
	case property.Sent:
		d.sent(i, e)
	case property.Acknowledged, property.Rejected:
		d.answered(i, e)
	case property.Entered:
		d.entered(i, e)
	case property.Wrote, property.Stale, property.Found:
		d.stored(i, e)
	case property.Granted:
		d.mark(who, i, fmt.Sprintf("grants token %d", e.Token)+d.about(e))
	case property.Freed:
		d.mark(who, i, "freed"+d.about(e))
	case property.Applied:
		d.mark(who, i, fmt.Sprintf("applied up to %d", e.Index))
	case property.Paused:
		d.pause(i, e)
	case property.Fault:
		d.fault(i, e)
	case property.Healed:
		d.across(y, "event healed", "good", "all faults repaired")
	case property.Restored:
		d.across(y, "event", "warn", "restored from an old state")
	case property.Served:
		d.mark(who, i, "served")
	case property.Ended:
		d.mark(who, i, "")
	}
	if d.rows[i].bad && e.Kind != property.Wrote && who != nil {
		fmt.Fprintf(&d.marks, "<circle class=\"halo\" cx=\"%.1f\" cy=\"%.1f\" r=\"9\"/>\n", who.x, y)
	}
}

func (d *drawing) requested(i int, e property.Event) {
	y := d.rows[i].y
	to, who := d.serviceProcess(e.Attempt), d.byName[e.Who]
	if to == nil || who == nil {
		return
	}
	end := y + slope
	if j := d.findGrant(e.Attempt); j >= i {
		end = d.rows[j].y
	}
	d.arrow(who.x, y, to.x, end, "", "acquire"+d.about(e))
}

// acquired draws the answer, and the lease up to its end.
func (d *drawing) acquired(i int, e property.Event) {
	y := d.rows[i].y
	from, who := d.serviceProcess(e.Attempt), d.byName[e.Who]
	if who == nil {
		return
	}
	if from != nil {
		start := y - slope
		if j := d.findGrant(e.Attempt); j >= 0 && j <= i {
			start = d.rows[j].y
		}
		d.arrow(from.x, start, who.x, y, "answer "+d.rows[i].class(), fmt.Sprintf("token %d", e.Token)+d.about(e))
	}
	end := d.until(i, func(o property.Event) bool { return o.Kind == property.Ended && o.Attempt == e.Attempt })
	fmt.Fprintf(&d.lines, "<rect class=\"lease hue%d\" x=\"%.1f\" y=\"%.1f\" width=\"8\" height=\"%.1f\" rx=\"3\"><title>lease with token %d</title></rect>\n",
		d.hues[e.Token], who.x-4, y, max(end-y, 6), e.Token)
}

// sent draws the message of an operation to the storage.
func (d *drawing) sent(i int, e property.Event) {
	who, j := d.byName[e.Who], d.findStored(e.Op)
	if who == nil {
		return
	}
	if j < i { // it did not arrive, as far as is known
		d.arrow(who.x, d.rows[i].y, who.x+laneWidth*.6, d.rows[i].y+slope, "warn", "write"+withToken(e.Token)+" …")
		return
	}
	class := d.rows[j].class()
	if d.events[j].Kind == property.Stale {
		class = cmp.Or(class, "warn")
	}
	label := "write" + withToken(cmp.Or(e.Token, d.events[j].Token)) + d.about(e)
	d.arrow(who.x, d.rows[i].y, d.byName[storageOf(d.events[j])].x, d.rows[j].y, class, label)
}

func (d *drawing) answered(i int, e property.Event) {
	who, j := d.byName[e.Who], d.findStored(e.Op)
	if who == nil || j < 0 || j > i {
		d.mark(who, i, e.Kind.String())
		return
	}
	class := d.rows[i].class()
	if e.Kind == property.Rejected {
		class = cmp.Or(class, "warn")
	}
	d.arrow(d.byName[storageOf(d.events[j])].x, d.rows[j].y, who.x, d.rows[i].y, "answer "+class, "")
}

// entered draws a holder raising the mark.
func (d *drawing) entered(i int, e property.Event) {
	to := d.byName[storageOf(e)]
	if who := d.byName[d.holders[grantKey{e.Resource, e.Token}]]; who != nil {
		d.arrow(who.x, d.rows[i].y-slope, to.x, d.rows[i].y, "", "enter"+withToken(e.Token))
	}
	d.mark(to, i, fmt.Sprintf("mark is %d", e.Token)+d.about(e))
}

// stored draws an event of the storage.
func (d *drawing) stored(i int, e property.Event) {
	at, y := d.byName[storageOf(e)], d.rows[i].y
	switch {
	case e.Kind == property.Stale:
		fmt.Fprintf(&d.marks, "<path class=\"stale\" d=\"M%.1f %.1fl10 10m0 -10l-10 10\"/>\n", at.x-5, y-5)
		d.text(at.x+14, y+4, "start", "warn", fmt.Sprintf("refused: token %d is stale", e.Token)+d.about(e))
	case e.Kind == property.Found:
		d.mark(at, i, fmt.Sprintf("version %d found", e.Version)+d.about(e))
	default:
		label := cmp.Or(e.Note, fmt.Sprintf("version %d → %d, token %d", e.Seen, e.Version, e.Token)+d.about(e))
		class, radius := d.rows[i].class(), 5
		if class != "" {
			radius = 7
		}
		fmt.Fprintf(&d.marks, "<circle class=\"wrote %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"/>\n", class, at.x, y, radius)
		d.text(at.x+14, y+4, "start", class, label)
	}
}

// pause shades a process until it is resumed.
func (d *drawing) pause(i int, e property.Event) {
	who := d.byName[e.Who]
	if who == nil {
		return
	}
	y, note := d.rows[i].y, cmp.Or(e.Note, "paused")
	end := d.until(i, func(o property.Event) bool { return o.Kind == property.Resumed && o.Who == e.Who })
	fmt.Fprintf(&d.back, "<rect class=\"pause\" x=\"%.1f\" y=\"%.1f\" width=\"36\" height=\"%.1f\"><title>%s</title></rect>\n",
		who.x-18, y, max(end-y, 8), html.EscapeString(note))
	d.text(who.x+24, y+4, "start", "kind", note)
}

func (d *drawing) fault(i int, e property.Event) {
	who, y, note := d.byName[e.Who], d.rows[i].y, cmp.Or(e.Note, "fault")
	if who == nil {
		d.across(y, "event", "warn", note)
		return
	}
	fmt.Fprintf(&d.marks, "<path class=\"fault\" d=\"M%.1f %.1fl-7 9h5l-2 7l9 -10h-5l2 -6z\"/>\n", who.x+1, y-8)
	d.text(who.x+12, y+4, "start", "warn", note)
}

// across draws a line over all processes.
func (d *drawing) across(y float64, class, textClass, text string) {
	fmt.Fprintf(&d.lines, "<path class=\"%s\" d=\"M%d %.1fH%.1f\"/>\n", class, axisWidth, y, d.width-rightWidth)
	d.text(axisWidth+4, y-4, "start", textClass, text)
}

// mark draws a dot on the line of a process, with a label.
func (d *drawing) mark(who *process, i int, text string) {
	if who == nil {
		return
	}
	class := d.rows[i].class()
	fmt.Fprintf(&d.marks, "<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n", class, who.x, d.rows[i].y)
	if text != "" {
		d.text(who.x+10, d.rows[i].y+4, "start", class, text)
	}
}

// arrow draws a message. Its label is near its start, above the line.
func (d *drawing) arrow(x1, y1, x2, y2 float64, class, text string) {
	length := math.Hypot(x2-x1, y2-y1)
	if length == 0 {
		return
	}
	ux, uy := (x2-x1)/length, (y2-y1)/length
	tipX, tipY := x2-6*ux, y2-6*uy
	fmt.Fprintf(&d.lines, "<path class=\"message %s\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", class, x1, y1, tipX, tipY)
	fmt.Fprintf(&d.marks, "<path class=\"head %s\" d=\"M%.1f %.1fL%.1f %.1fL%.1f %.1fZ\"/>\n", class, tipX, tipY,
		tipX-9*ux+4*uy, tipY-9*uy-4*ux, tipX-9*ux-4*uy, tipY-9*uy+4*ux)
	if text == "" {
		return
	}
	class = strings.TrimSpace(strings.TrimPrefix(class, "answer")) // the label of an answer looks like any other
	const share = 74                                               // pixels from its start
	along := min(share, length/2)
	d.text(x1+ux*along, y1+uy*along-5, "middle", class, text)
}

// text draws a label, escaped.
func (d *drawing) text(x, y float64, anchor, class, label string) {
	fmt.Fprintf(&d.labels, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", class, x, y, anchor, html.EscapeString(label))
}

// about names the resource if there are several.
func (d *drawing) about(e property.Event) string {
	if !d.several || e.Resource == "" {
		return ""
	}
	return " (" + string(e.Resource) + ")"
}

func withToken(t fencing.Token) string {
	if t == fencing.None {
		return ""
	}
	return fmt.Sprintf(", token %d", t)
}
