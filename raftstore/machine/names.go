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
// only if they are still in use. No call works on more than a few blocks and the fresh names.
//
// Two blocks that follow each other have more than maxBlock/2 names together, so that more than a
// quarter of their memory is used.
type names struct {
	blocks [][]fencing.Resource // in order, of locks in use; only one block alone may be empty
	fresh  []fencing.Resource   // not in the blocks yet, unsorted; some may be unused
	read   int                  // the number of names in all pages so far, for tests of the work of a command
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
	n.fresh = slices.DeleteFunc(n.fresh, func(name fencing.Resource) bool { return locks[name] == nil })
	slices.Sort(n.fresh)
	for _, name := range slices.Compact(n.fresh) {
		n.insert(name)
	}
	clear(n.fresh)
	n.fresh = n.fresh[:0]
}

// remove removes the name of a lock that is not in use any more.
func (n *names) remove(name fencing.Resource) {
	if len(n.blocks) == 0 {
		return
	}
	i := n.block(name)
	at, found := slices.BinarySearch(n.blocks[i], name)
	if !found { // it is fresh
		return
	}
	n.blocks[i] = slices.Delete(n.blocks[i], at, at+1)
	n.join(i)
	n.join(i - 1)
}

// join joins a block and the next one if they are small, or one of them is empty.
func (n *names) join(i int) {
	if i < 0 || i+1 >= len(n.blocks) {
		return
	}
	if a, b := n.blocks[i], n.blocks[i+1]; len(a) == 0 || len(b) == 0 || len(a)+len(b) <= maxBlock/2 {
		n.blocks[i] = append(a, b...)
		n.blocks = slices.Delete(n.blocks, i+1, i+2)
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
	for i := n.block(first); i < len(n.blocks); i++ {
		block := n.blocks[i]
		at, _ := slices.BinarySearch(block, first)
		for _, name := range block[at:] {
			if len(page) >= limit || !strings.HasPrefix(string(name), prefix) {
				return page
			}
			page = append(page, name)
			n.read++
		}
	}
	return page
}
