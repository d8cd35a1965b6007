package plot

// Bars is a panel with a horizontal bar per value.
type Bars struct {
	Title string
	Log   bool
	Bars  []Bar
}

// Bar is a value with its spread and its label. A value of 0 has only the label.
type Bar struct {
	Name             string
	Style            Style
	Value, Low, High float64
	Label            string
}

const (
	barHeight = 16
	barStep   = 24
)

func (b Bars) height(float64) float64 { return 24 + barStep*float64(len(b.Bars)) }

// styles is empty: each bar has its name beside it.
func (b Bars) styles() []named { return nil }

func (b Bars) draw(c *canvas, area box) {
	names, labels := 0.0, 0.0
	var values []float64
	for _, bar := range b.Bars {
		names, labels = max(names, textWidth(bar.Name)), max(labels, textWidth(bar.Label))
		values = append(values, bar.Value, bar.High)
	}
	left, right := area.x+names+10, area.x+area.width-labels-8
	s := newScale(values, b.Log, left, right)
	c.text(area.x, area.y+12, "head", b.Title)
	for i, bar := range b.Bars {
		y := area.y + 22 + barStep*float64(i)
		c.text(left-8, y+12, "end", bar.Name)
		end := left
		if bar.Value > 0 {
			end = max(s.at(bar.Value), left+1)
			c.rectangle(bar.Style.Color.class()+" bar", box{left, y, end - left, barHeight})
			if bar.High > bar.Low && bar.Low > 0 {
				c.segment("whisker", s.at(bar.Low), y+barHeight/2, s.at(bar.High), y+barHeight/2)
				c.segment("whisker", s.at(bar.Low), y+4, s.at(bar.Low), y+barHeight-4)
				c.segment("whisker", s.at(bar.High), y+4, s.at(bar.High), y+barHeight-4)
				end = max(end, s.at(bar.High))
			}
		}
		c.text(end+6, y+12, "small", bar.Label)
	}
	c.segment("axis", left, area.y+18, left, area.y+22+barStep*float64(len(b.Bars))-4)
}
