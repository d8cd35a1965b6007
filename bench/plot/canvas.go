package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
)

// canvas collects the elements of a picture.
type canvas struct{ out bytes.Buffer }

// newCanvas starts a picture.
func newCanvas(width, height float64, title string) *canvas {
	c := &canvas{}
	fmt.Fprintf(&c.out, `<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" viewBox="0 0 %s %s" role="img">`+"\n",
		pixels(width), pixels(height), pixels(width), pixels(height))
	fmt.Fprintf(&c.out, "<title>%s</title>\n", escape(title))
	c.out.WriteString(styles())
	fmt.Fprintf(&c.out, `<rect class="page" width="%s" height="%s"/>`+"\n", pixels(width), pixels(height))
	return c
}

// styles returns the style sheet: the light colours, then the dark ones for pages that ask for them.
func styles() string {
	var light, dark bytes.Buffer
	for i, s := range shades {
		for page, out := range []*bytes.Buffer{&light, &dark} {
			fmt.Fprintf(out, ".%s{stroke:%s;fill:%s}", Color(i).class(), s[page], s[page])
		}
	}
	return `<style>
text{font:12px -apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328;stroke:none}
.title{font-size:15px;font-weight:600}.head{font-weight:600}.small{font-size:11px;fill:#59636e}
.end{text-anchor:end}.middle{text-anchor:middle}
.page{fill:#fff}.grid{stroke:#d8dee4;stroke-width:1}.axis{stroke:#59636e;stroke-width:1}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.dashed{stroke-dasharray:6 4}.mark{stroke:none}.range{stroke-width:1.3}.bar{stroke:none}
.whisker{stroke:#1f2328;stroke-width:1.3}
` + light.String() + `
path.line{fill:none}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.page{fill:#0d1117}.grid{stroke:#2a313a}.axis{stroke:#9198a1}.whisker{stroke:#e6edf3}
` + dark.String() + `path.line{fill:none}}
</style>
`
}

// end finishes the picture.
func (c *canvas) end() []byte {
	c.out.WriteString("</svg>\n")
	return c.out.Bytes()
}

// text writes a text at a point.
func (c *canvas) text(x, y float64, class, text string) {
	fmt.Fprintf(&c.out, `<text class="%s" x="%s" y="%s">%s</text>`+"\n", class, pixels(x), pixels(y), escape(text))
}

// segment draws a straight line.
func (c *canvas) segment(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&c.out, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`+"\n", class, pixels(x1), pixels(y1), pixels(x2), pixels(y2))
}

// rectangle draws a filled rectangle.
func (c *canvas) rectangle(class string, b box) {
	fmt.Fprintf(&c.out, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"/>`+"\n",
		class, pixels(b.x), pixels(b.y), pixels(b.width), pixels(b.height))
}

// element adds an element.
func (c *canvas) element(text string) {
	c.out.WriteString(text)
	c.out.WriteByte('\n')
}

// legend draws the names of the series below the title.
func (c *canvas) legend(lines [][]named) {
	for i, line := range lines {
		x, y := float64(margin), float64(titleSpace+legendLine*i)+8
		for _, n := range line {
			fmt.Fprintf(&c.out, `<path class="%s line%s" d="M%s %sh28"/>`+"\n", n.style.Color.class(), n.style.dash(), pixels(x), pixels(y))
			c.element(n.style.at(x+14, y))
			c.text(x+34, y+4, "", n.name)
			x += entryWidth(n.name)
		}
	}
}

// escape makes a text safe within XML.
func escape(text string) string {
	var out bytes.Buffer
	_ = xml.EscapeText(&out, []byte(text))
	return out.String()
}
