package lockview

import (
	"slices"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/terminal"
)

// blockSize is the number of locks by which a request moves on: scrolling within a block
// needs no new request.
const blockSize = 100

// maxLimit is the largest number of locks that the service returns.
const maxLimit = 500

// Sorts lists the sort orders, in the order of the keys 1 to 5 that select them.
var Sorts = []string{"queue", "held", "rate", "refused", "name"}

// sortTitles say what each order is for.
var sortTitles = map[string]string{"queue": "longest queues", "held": "longest holders", "rate": "busiest locks",
	"refused": "refused writes", "name": "by name"}

// Update is what a View is told about the service. Nil messages mean no news.
type Update struct {
	Overview *pb.OverviewResponse
	Cluster  *pb.ClusterStatusResponse
	// Offset is the number of the first lock of Overview.
	Offset int
	// Problem says why the locks are old or incomplete; empty if they are not.
	Problem string
	// Time is when the update arrived.
	Time time.Time
}

// View is the state of a live screen.
type View struct {
	// Sort, Prefix and Mode select the locks.
	Sort, Prefix, Mode string
	// Limit is the number of locks, 0 for as many as fit.
	Limit int
	// Interval is the time between two updates.
	Interval time.Duration

	last   Update // the newest messages
	lost   bool   // no member answers
	shown  Update // the messages on the screen, older than last while the view is paused
	top    int    // the number of the first lock on the screen
	page   int    // how many locks fit on the screen
	paused bool
	help   bool
	typing bool // the user types a prefix
	typed  []rune
}

// Action is what a key asks for.
type Action int

// The actions.
const (
	Redraw  Action = iota
	Request        // a new request is needed, and a redraw
	Quit
)

// Request returns the request for the locks of the view.
func (v *View) Request() *pb.OverviewRequest {
	offset := v.top / blockSize * blockSize
	limit := min(maxLimit, blockSize+max(v.page, 1))
	if v.Limit > 0 {
		limit = max(1, min(limit, v.Limit-offset))
	}
	return &pb.OverviewRequest{Prefix: v.Prefix, Mode: v.Mode, Sort: v.Sort, Offset: int32(offset), Limit: int32(limit),
		Interval: v.Interval.String()}
}

// Update shows newer messages, unless the view is paused.
func (v *View) Update(u Update) {
	if u.Overview != nil {
		v.last.Overview, v.last.Offset, v.last.Time = u.Overview, u.Offset, u.Time
	}
	if u.Cluster != nil {
		v.last.Cluster = u.Cluster
	}
	v.last.Problem = u.Problem
	v.lost = u.Problem != "" && u.Overview == nil && u.Cluster == nil
	if !v.paused {
		v.shown = v.last
	}
}

// Key handles a key.
func (v *View) Key(k terminal.Key) Action {
	switch {
	case k == terminal.Closed:
		return Quit
	case k == terminal.Resized:
		return Redraw
	case v.typing:
		return v.typeKey(k)
	case v.help:
		v.help = false
		return Redraw
	}
	switch k {
	case 'q':
		return Quit
	case 'h', '?':
		v.help = true
	case 'p', ' ':
		v.paused = !v.paused
		if !v.paused {
			v.shown = v.last
		}
	case '/':
		v.typing, v.typed = true, []rune(v.Prefix)
	case 's':
		return v.setSort(Sorts[(slices.Index(Sorts, v.Sort)+1)%len(Sorts)])
	case '1', '2', '3', '4', '5':
		return v.setSort(Sorts[k-'1'])
	default:
		return v.scroll(k)
	}
	return Redraw
}

// typeKey handles a key of the prefix that the user types.
func (v *View) typeKey(k terminal.Key) Action {
	switch {
	case k == terminal.Escape:
		v.typing = false
	case k == terminal.Enter:
		v.typing, v.Prefix, v.top = false, string(v.typed), 0
		return Request
	case k == terminal.Backspace && len(v.typed) > 0:
		v.typed = v.typed[:len(v.typed)-1]
	case k > 0:
		v.typed = append(v.typed, rune(k))
	}
	return Redraw
}

func (v *View) setSort(sort string) Action {
	v.Sort, v.top, v.paused = sort, 0, false
	return Request
}

// scroll moves the first lock on the screen.
func (v *View) scroll(k terminal.Key) Action {
	before, total := v.top, int(v.shown.Overview.GetTotalLocks())
	if v.Limit > 0 {
		total = min(total, v.Limit)
	}
	switch k {
	case terminal.Up, 'k':
		v.top--
	case terminal.Down, 'j':
		v.top++
	case terminal.PageUp:
		v.top -= v.page
	case terminal.PageDown:
		v.top += v.page
	case terminal.Home, 'g':
		v.top = 0
	case terminal.End, 'G':
		v.top = total
	default:
		return Redraw
	}
	v.top = max(0, min(v.top, total-v.page))
	if v.top/blockSize != before/blockSize {
		v.paused = false // the locks of another block have to be read
		return Request
	}
	return Redraw
}
