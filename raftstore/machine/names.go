package machine

import (
	"slices"
	"strings"

	"github.com/leased-project/leased/fencing"
)

const (
	// maxBlock is how many names a block has room for.
	maxBlock = 256
	// maxFresh is how many names may wait to be put in order.
	maxFresh = 1024
)

// names has the names of the locks in use in ascending order, so that a page of
// List need not look at all of them. It is no part of the state.
//
// Most locks are gone soon after they were made. So names are put in order late,
// many at once, and only those that are still in use; and names that are not
// are taken out when someone comes by, or when there are too many of them.
type names struct {
	blocks [][]fencing.Resource // in order, none empty; some names may be gone
	fresh  []fencing.Resource   // not in the blocks yet, in no order
}

// add takes the name of a new lock.
func (n *names) add(name fencing.Resource, locks map[fencing.Resource]*lock) {
	n.fresh = append(n.fresh, name)
	if len(n.fresh) >= maxFresh {
		n.order(locks)
	}
}

// order puts the fresh names into their places.
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

// tighten writes the blocks anew. It comes when they are less than a quarter
// full of names in use, and leaves them three quarters full: the names that
// went in between pay for it.
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

// insert puts a name into its block, unless it is there.
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
		if at == maxBlock-1 { // they come in order, as those with numbers do: leave full blocks behind
			half = at
		}
		n.blocks = slices.Insert(n.blocks, i+1, append(make([]fencing.Resource, 0, maxBlock), block[half:]...))
		clear(block[half:])
		n.blocks[i] = block[:half]
	}
}

// block is where a name is or belongs: the last block that begins at or before
// it, else the first.
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

// page is the first names in use that begin with prefix and come after the name
// after, limit of them at most.
func (n *names) page(prefix string, after fencing.Resource, limit int, locks map[fencing.Resource]*lock) (page []fencing.Resource) {
	n.order(locks)
	first := max(fencing.Resource(prefix), after+"\x00") // nothing is between after and that
	for i := n.block(first); i < len(n.blocks); {
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

// inUse takes the names out that no lock has.
func inUse(list []fencing.Resource, locks map[fencing.Resource]*lock) []fencing.Resource {
	return slices.DeleteFunc(list, func(name fencing.Resource) bool { return locks[name] == nil })
}
