package redlockadapter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/leased-project/leased/lease"
)

// claim is what an attempt asks for: the lock alone, as one of its readers, or
// one of its permits. Readers and permits take the lock like everyone else, for
// that is what makes their tokens sound; then they pass it on and stay in.
type claim struct {
	kind    lease.Kind
	slot    int // for a permit
	permits int
}

// newClaim is what a request asks for. The first slot is any: if it is not free
// the nodes name one that is.
func newClaim(request *lease.Request) claim {
	c := claim{kind: request.Kind, permits: request.Permits}
	if c.kind == lease.Permit {
		c.slot = 1 + rand.IntN(c.permits)
	}
	return c
}

// text is the claim as the scripts know it.
func (c claim) text() string {
	switch c.kind {
	case lease.Shared:
		return "s"
	case lease.Permit:
		return "p" + strconv.Itoa(c.slot)
	}
	return ""
}

// parseClaim reads what text writes.
func parseClaim(text string) claim {
	switch {
	case text == "s":
		return claim{kind: lease.Shared}
	case strings.HasPrefix(text, "p"):
		slot, _ := strconv.Atoi(text[1:])
		return claim{kind: lease.Permit, slot: slot}
	}
	return claim{}
}

// after puts the claim behind other words of a script's argument.
func (c claim) after(words string) string {
	if c.kind == lease.Exclusive {
		return words
	}
	return words + " " + c.text()
}

// asked is after, for acquire: it also names the number of permits.
func (c claim) asked(words string) string {
	if c.kind == lease.Permit {
		return c.after(words) + "/" + strconv.Itoa(c.permits)
	}
	return c.after(words)
}

// slotTaken is why a node did not vote: another slot is free there.
type slotTaken struct {
	free int
}

// Error names the slot.
func (s slotTaken) Error() string { return fmt.Sprintf("slot is taken, slot %d is free", s.free) }

// otherSlot is the slot that most nodes name as free, 0 if none does.
func otherSlot(errs []error) int {
	var slots []int
	for _, err := range errs {
		if taken, ok := err.(slotTaken); ok {
			slots = append(slots, taken.free)
		}
	}
	slices.Sort(slots)
	best, most := 0, 0
	for i, first := 0, 0; i < len(slots); i++ {
		if slots[i] != slots[first] {
			first = i
		}
		if n := i - first + 1; n > most {
			best, most = slots[i], n
		}
	}
	return best
}
