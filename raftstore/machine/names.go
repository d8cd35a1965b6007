package machine

import (
	"slices"
	"strings"

	"github.com/leased-project/leased/fencing"
)

const (
	// maxBlock is the capacity of a block.
	maxBlock = 256
	// maxFresh is the maximum number of names that are not sorted yet.
	maxFresh = 1024
)

// names is a sorted index of the locks in use, so that a page of List does not visit all
// locks. It is not part of the replicated state.
//
// Most locks exist only for a short time. So names are sorted late, many at a time, and
// only if they are still in use. Names of unused locks are removed when a page reaches
// them, or when there are too many.
type names struct {
	blocks [][]fencing.Resource // in order, none empty; some names may be unused
	fresh  []fencing.Resource   // not in the blocks yet, unsorted
	read   int                  // the number of names that pages have looked at, for tests of the work of a command
}

// add adds the name of a new lock.
func (n *names) add(name fencing.Resource, locks map[fencing.Resource]*lock) {
	n.fresh = append(n.fresh, name)
	if len(n.fresh) >= maxFresh {
		n.order(locks)
	}
}

// order moves the fresh names into the blocks.
func (n *names) order(locks map[fencing.Resource]*lock) {
	n.fresh = inUse(n.fresh, locks)
	slices.Sort(n.fresh)
	for _, name := range slices.Compact(n.fresh) {
		n.insert(name)
	}
	clear(n.fresh)
	n.fresh = n.fresh[:0]
	if len(n.blocks) > 8+len(locks)/(maxBlock/4) {
		n.tighten(locks)
	}
}

// tighten rebuilds the blocks when less than a quarter of their capacity is in use, and
// leaves them three quarters full. Its cost is amortized over the names removed in
// between.
func (n *names) tighten(locks map[fencing.Resource]*lock) {
	old := n.blocks
	n.blocks = nil
	for _, block := range old {
		for _, name := range inUse(block, locks) {
			last := len(n.blocks) - 1
			if last < 0 || len(n.blocks[last]) == maxBlock*3/4 {
				n.blocks = append(n.blocks, make([]fencing.Resource, 0, maxBlock))
				last++
			}
			n.blocks[last] = append(n.blocks[last], name)
		}
	}
}

// insert adds a name to its block, unless it is already there.
func (n *names) insert(name fencing.Resource) {
	if len(n.blocks) == 0 {
		n.blocks = append(n.blocks, make([]fencing.Resource, 0, maxBlock))
	}
	i := n.block(name)
	at, found := slices.BinarySearch(n.blocks[i], name)
	if found {
		return
	}
	n.blocks[i] = slices.Insert(n.blocks[i], at, name)
	if block := n.blocks[i]; len(block) == maxBlock {
		half := maxBlock / 2
		if at == maxBlock-1 { // names that arrive in order, such as numbered ones, leave full blocks behind
			half = at
		}
		n.blocks = slices.Insert(n.blocks, i+1, append(make([]fencing.Resource, 0, maxBlock), block[half:]...))
		clear(block[half:])
		n.blocks[i] = block[:half]
	}
}

// block returns the block of a name: the last block that begins at or before it, else the
// first.
func (n *names) block(name fencing.Resource) int {
	i, found := slices.BinarySearchFunc(n.blocks, name, func(block []fencing.Resource, name fencing.Resource) int {
		if len(block) == 0 {
			return -1
		}
		return strings.Compare(string(block[0]), string(name))
	})
	if !found && i > 0 {
		i--
	}
	return i
}

// page returns the first names in use that begin with prefix and come after the name
// after, at most limit of them.
func (n *names) page(prefix string, after fencing.Resource, limit int,
	locks map[fencing.Resource]*lock) (page []fencing.Resource) {
	n.order(locks)
	first := max(fencing.Resource(prefix), after+"\x00") // the successor of after
	for i := n.block(first); i < len(n.blocks); {
		n.read += len(n.blocks[i])
		block := inUse(n.blocks[i], locks)
		n.blocks[i] = block
		if len(block) == 0 {
			n.blocks = slices.Delete(n.blocks, i, i+1)
			continue
		}
		at, _ := slices.BinarySearch(block, first)
		for _, name := range block[at:] {
			if len(page) >= limit || !strings.HasPrefix(string(name), prefix) {
				return page
			}
			page = append(page, name)
		}
		i++
	}
	return page
}

// inUse removes the names of unused locks.
func inUse(list []fencing.Resource, locks map[fencing.Resource]*lock) []fencing.Resource {
	return slices.DeleteFunc(list, func(name fencing.Resource) bool { return locks[name] == nil })
}
