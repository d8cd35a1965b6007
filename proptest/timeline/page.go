package timeline

import (
	_ "embed"
	"html/template"
	"io"
	"slices"

	"github.com/leased-project/leased/proptest/property"
)

// Section is one history on a page.
type Section struct {
	Title string
	// Note is a sentence or two for the reader.
	Note   string
	Events []property.Event
	// Bad lists its violations. Their events are drawn in red.
	Bad []*property.Violation
}

//go:embed page.html.tmpl
var source string

var page = template.Must(template.New("page").Parse(source))

// Write draws a history. The events of bad are drawn in red.
func Write(w io.Writer, title string, events []property.Event, bad ...*property.Violation) error {
	return WritePage(w, title, Section{Events: events, Bad: bad})
}

// WritePage draws several histories below each other.
func WritePage(w io.Writer, title string, sections ...Section) error {
	return page.Execute(w, struct {
		Title    string
		Sections []Section
	}{title, sections})
}

// Violates says whether an event violates a property.
func (s Section) Violates(e property.Event) bool {
	return slices.ContainsFunc(s.Bad, func(v *property.Violation) bool { return v.Event == e })
}

// Drawing returns the diagram as SVG. The number is unique within the page.
func (s Section) Drawing(number int) template.HTML { return newLayout(s).draw(number) }
