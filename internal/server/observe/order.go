package observe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/leased-project/leased/lease/engine"
)

// order is how a list is sorted. Locks that are equal are sorted by name.
type order struct {
	compare func(a, b *row) int
	// free says whether the list contains locks that are free at the moment.
	free bool
}

var orders = map[string]order{
	"name":    {compare: func(a, b *row) int { return 0 }},
	"queue":   {compare: func(a, b *row) int { return cmp.Compare(b.waiters, a.waiters) }},
	"held":    {compare: byAge},
	"rate":    {compare: func(a, b *row) int { return cmp.Compare(b.rate, a.rate) }, free: true},
	"refused": {compare: func(a, b *row) int { return cmp.Compare(b.refused, a.refused) }, free: true},
}

// byAge sorts the longest holder first. A holder whose age is unknown is older than all
// that this member has seen. Locks without a holder are last.
func byAge(a, b *row) int {
	if a.holders == 0 || b.holders == 0 {
		return cmp.Compare(min(b.holders, 1), min(a.holders, 1))
	}
	// Among grants within the same second, the token shows which came first.
	return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.oldest, b.oldest))
}

// parseOrder returns the name of an order; the default is name.
func parseOrder(name string) (string, error) {
	name = cmp.Or(name, "name")
	if _, ok := orders[name]; !ok {
		return "", fmt.Errorf("%w: sort (%.40q) must be one of %q", engine.ErrInvalid, name, slices.Sorted(maps.Keys(orders)))
	}
	return name, nil
}

// by returns the rows in an order. All callers share the result.
func (s *scan) by(name string) []*row {
	if found, ok := s.sorted.Load(name); ok {
		return found.([]*row)
	}
	list := make([]*row, len(s.rows))
	for i := range s.rows {
		list[i] = &s.rows[i]
	}
	if name != "name" { // the rows are sorted by name
		slices.SortStableFunc(list, orders[name].compare)
	}
	found, _ := s.sorted.LoadOrStore(name, list)
	return found.([]*row)
}
