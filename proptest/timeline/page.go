package timeline

import (
	"fmt"
	"html"
	"io"
	"strings"

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

// Write draws a history. The events of bad are drawn in red.
func Write(w io.Writer, title string, events []property.Event, bad ...*property.Violation) error {
	return WritePage(w, title, Section{Events: events, Bad: bad})
}

// WritePage draws several histories below each other.
func WritePage(w io.Writer, title string, sections ...Section) error {
	var b strings.Builder
	fmt.Fprintf(&b, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n"+
		"<title>%[1]s</title>\n<style>%[2]s</style>\n</head>\n<body>\n<h1>%[1]s</h1>\n%[3]s", html.EscapeString(title), style, legend)
	for i, s := range sections {
		s.write(&b, i)
	}
	b.WriteString("</body>\n</html>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (s Section) write(b *strings.Builder, number int) {
	b.WriteString("<section>\n")
	if s.Title != "" {
		fmt.Fprintf(b, "<h2>%s</h2>\n", html.EscapeString(s.Title))
	}
	if s.Note != "" {
		fmt.Fprintf(b, "<p>%s</p>\n", html.EscapeString(s.Note))
	}
	for _, v := range s.Bad {
		fmt.Fprintf(b, "<p class=\"verdict\">Violated: %s: %s</p>\n", html.EscapeString(string(v.Property)), html.EscapeString(v.Detail))
	}
	p := newLayout(s.Events, s.Bad)
	b.WriteString("<div class=\"scroll\">\n")
	p.draw(b, number)
	b.WriteString("</div>\n<details><summary>The events as text</summary>\n<pre>")
	for i, e := range s.Events {
		line := html.EscapeString(e.String()) + "\n"
		if p.rows[i].bad {
			line = "<b class=\"bad\">" + line + "</b>"
		}
		b.WriteString(line)
	}
	b.WriteString("</pre></details>\n</section>\n")
}

// legend explains the symbols, once per page.
const legend = `<ul class="legend">
<li><svg width="34" height="16" aria-hidden="true"><rect class="lease hue0" x="13" y="1" width="8" height="14" rx="3"/></svg>lease, as its holder sees it</li>
<li><svg width="34" height="16" aria-hidden="true"><rect class="pause" x="4" y="1" width="26" height="14"/></svg>paused</li>
<li><svg width="34" height="16" aria-hidden="true"><path class="message" d="M2 8H32"/></svg>message</li>
<li><svg width="34" height="16" aria-hidden="true"><path class="message answer" d="M2 8H32"/></svg>answer</li>
<li><svg width="34" height="16" aria-hidden="true"><circle class="wrote" cx="17" cy="8" r="5"/></svg>write applied</li>
<li><svg width="34" height="16" aria-hidden="true"><path class="stale" d="M12 3L22 13M22 3L12 13"/></svg>stale write refused</li>
<li><svg width="34" height="16" aria-hidden="true"><circle class="wrote bad" cx="17" cy="8" r="6"/></svg>violates a property</li>
<li><svg width="34" height="16" aria-hidden="true"><path class="fault" d="M18 1L12 9H17L15 15L23 6H18Z"/></svg>fault</li>
</ul>
`

// style supports light and dark mode and loads nothing from elsewhere.
const style = `
:root{color-scheme:light dark;--paper:#fff;--ink:#1c2128;--faint:#6b7480;--line:#c6ccd4;--shade:#e3e6ea;--message:#41618c;
--good:#1a7f4b;--warn:#b25e00;--bad:#d1242f;--h0:#7aa7e8;--h1:#d9a441;--h2:#7cbf8e;--h3:#c08fd6;--h4:#e39a86;--h5:#6fc0c4}
@media(prefers-color-scheme:dark){:root{--paper:#12161c;--ink:#e4e8ee;--faint:#98a2af;--line:#3d4652;--shade:#2a313b;--message:#8fb4e6;
--good:#4cc38a;--warn:#f0a04b;--bad:#ff6b6b;--h0:#3f6fb5;--h1:#a37420;--h2:#3f8454;--h3:#85549b;--h4:#a85f4b;--h5:#35868a}}
body{margin:1.5rem auto;max-width:1180px;padding:0 10px;background:var(--paper);color:var(--ink);font:15px/1.45 system-ui,sans-serif}
h1{font-size:1.4rem;margin:0 0 .4rem}h2{font-size:1.1rem;margin:1.6rem 0 .2rem}p{margin:.2rem 0 .6rem}
.verdict,b.bad{color:var(--bad);font-weight:600}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin:0 0 .8rem;padding:0;color:var(--faint);font-size:13px}
.legend svg{vertical-align:-3px;margin-right:6px}
.scroll{overflow-x:auto}details{margin:.6rem 0}summary{cursor:pointer;color:var(--faint)}pre{overflow-x:auto;font-size:12px}
svg text{fill:var(--ink);font:12px system-ui,sans-serif;paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round}
svg .process{font-weight:600;font-size:13px}svg .kind,svg .time{fill:var(--faint);font-size:11px}svg .time{font-variant-numeric:tabular-nums}
.lifeline,.axis{stroke:var(--line);stroke-width:1.5;fill:none}.grid{stroke:var(--line);stroke-width:.5;opacity:.45}
.pause{fill:var(--shade);stroke:var(--faint);stroke-dasharray:3 3}
.lease{opacity:.9}.hue0{fill:var(--h0)}.hue1{fill:var(--h1)}.hue2{fill:var(--h2)}.hue3{fill:var(--h3)}.hue4{fill:var(--h4)}.hue5{fill:var(--h5)}
.message{stroke:var(--message);stroke-width:1.5;fill:none}.answer{stroke-dasharray:5 4}.head{fill:var(--message)}
.wrote{fill:var(--good)}.dot{fill:var(--ink)}.stale{stroke:var(--warn);stroke-width:2.5;fill:none}
.fault{fill:var(--warn)}.event{stroke:var(--warn);stroke-width:1;stroke-dasharray:2 4}.healed{stroke:var(--good)}
path.warn{stroke:var(--warn)}.head.warn,text.warn{fill:var(--warn)}text.good{fill:var(--good)}
path.bad{stroke:var(--bad);stroke-width:2.5}circle.bad,.head.bad,text.bad{fill:var(--bad)}text.bad{font-weight:700}
.halo{fill:none;stroke:var(--bad);stroke-width:2}
`
