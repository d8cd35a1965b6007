package lockview

import (
	"fmt"
	"math"
	"strconv"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/terminal"
)

// columns describe a lock as one line of a table.
var columns = []terminal.Column{
	{Title: "LOCK", Min: 20, Middle: true, Grow: true},
	{Title: "MODE", Drop: 3},
	{Title: "HOLDER", Min: 10, Middle: true},
	{Title: "USER", Min: 6, Drop: 5},
	{Title: "TOKEN", Right: true, Drop: 6},
	{Title: "HELD", Right: true},
	{Title: "LEFT", Right: true, Drop: 2},
	{Title: "WAIT", Right: true},
	{Title: "NEXT", Min: 8, Middle: true, Drop: 4},
	{Title: "RATE", Right: true, Drop: 1},
	{Title: "REFUSED", Right: true, Drop: 1},
}

// The indexes of the cells that Changes compares.
const (
	cellLock, cellHolder, cellToken, cellHeld, cellWaiters, cellNext, cellRefused = 0, 2, 4, 5, 7, 8, 10
)

// newRow returns the cells of a lock.
func newRow(l *pb.LockOverview) []string {
	lock := l.GetLock()
	row := []string{terminal.Clean(lock.GetResource()), modeText(lock.GetMode()), "-", "", "", "-", "",
		number(l.GetWaiters(), "0"), "", "", number(l.GetRefused(), "")}
	if holders := lock.GetHolders(); len(holders) > 0 {
		h := longest(holders)
		row[cellHolder] = Name(h)
		if n := max(len(holders), int(l.GetHolders())); n > 1 {
			row[cellHolder] += fmt.Sprintf(" +%d", n-1)
		}
		row[3], row[cellToken] = terminal.Clean(h.User), number(int64(h.Token), "")
		row[cellHeld], row[6] = Age(h.Age), Age(h.TtlLeft)
	} else if lock.GetDelayed() {
		row[cellHolder] = "(lock-delay)"
	}
	if waiters := lock.GetWaiters(); len(waiters) > 0 {
		row[cellNext] = Name(waiters[0])
	}
	if rate := l.GetGrantsPerSecond(); rate >= 0.05 {
		row[9] = strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return row
}

// longest returns the holder with the smallest token, which has held the lock for the
// longest time. Tokens may be hidden; then it is the first one.
func longest(holders []*pb.Party) *pb.Party {
	first := holders[0]
	for _, h := range holders[1:] {
		if h.Token < first.Token {
			first = h
		}
	}
	return first
}

// Name returns the name that a holder or waiter gives itself.
func Name(p *pb.Party) string {
	if p.GetHolder() == "" {
		return "(unnamed)"
	}
	return terminal.Clean(p.Holder)
}

func modeText(mode string) string {
	switch mode {
	case "correctness":
		return "corr"
	case "efficiency":
		return "eff"
	}
	return terminal.Clean(mode)
}

func number[T int32 | int64](n T, zero string) string {
	if n == 0 {
		return zero
	}
	return strconv.FormatInt(int64(n), 10)
}

// Age returns a duration of the API for people, with its two largest units. It returns
// "-" for an empty one.
func Age(text string) string {
	d, err := time.ParseDuration(text)
	if err != nil {
		return "-"
	}
	return Short(d)
}

// Short formats a duration with its two largest units, such as 2h13m.
func Short(d time.Duration) string {
	if d < 0 {
		return "0s"
	}
	s := int64(math.Floor(d.Seconds()))
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 24*3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%02dh", s/(24*3600), s/3600%24)
}

// table lays out locks. A width of 0 means that lines may be of any length.
func table(locks []*pb.LockOverview, width int) []string {
	rows := make([][]string, len(locks))
	for i, l := range locks {
		rows[i] = newRow(l)
	}
	return terminal.Table(columns, rows, width)
}
