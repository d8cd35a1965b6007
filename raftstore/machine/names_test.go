package machine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// listed returns what List must return, computed from all names.
func listed(m *Machine, prefix string, after fencing.Resource, limit int) (found []fencing.Resource) {
	for _, name := range sortedKeys(m.locks) {
		if name > after && strings.HasPrefix(string(name), prefix) && len(found) < limit {
			found = append(found, name)
		}
	}
	return found
}

// TestPages compares pages of List with the locks, while thousands of locks come and go: first
// most of them stay, then few, then none.
func TestPages(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	id := engine.SessionID{1}
	m := opened(id)
	held := map[fencing.Resource]engine.Nonce{}
	var nonce engine.Nonce
	look := func() {
		t.Helper()
		prefix := []string{"", "a/", "b/1", "a/123", "c"}[random.IntN(5)]
		after := fencing.Resource("")
		if random.IntN(2) == 0 {
			after = name(random)
		}
		limit := 1 + random.IntN(700)
		found := m.List(prefix, after, limit)
		for _, name := range found {
			require.Len(t, m.Inspect(name).Holders, 1)
		}
		require.Equal(t, listed(m, prefix, after, limit), found, "%d after %q with %q", limit, after, prefix)
	}
	for _, keep := range []int{4000, 30, 2500, 0} { // the approximate number of held locks
		for range 12_000 {
			key := name(random)
			if n, ok := held[key]; ok {
				m.Apply(&Release{Session: id, Incarnation: 1, Nonce: n})
				delete(held, key)
			} else if len(held) < keep {
				nonce++
				m.Apply(&Acquire{Session: id, Incarnation: 1, Request: engine.Request{Nonce: nonce,
					Resources: []fencing.Resource{key}}})
				held[key] = nonce
			}
			if random.IntN(400) == 0 {
				look()
			}
		}
		for _, key := range sortedKeys(held) {
			if len(held) > keep {
				m.Apply(&Release{Session: id, Incarnation: 1, Nonce: held[key]})
				delete(held, key)
			}
		}
		look()
		require.Len(t, m.locks, len(held))
		require.Len(t, m.List("", "", 1<<20), len(held))
		require.True(t, slices.IsSortedFunc(m.names.blocks, func(a, b []fencing.Resource) int {
			return strings.Compare(string(a[0]), string(b[0]))
		}))
		for i := 1; i < len(m.names.blocks); i++ {
			require.Greater(t, len(m.names.blocks[i-1])+len(m.names.blocks[i]), maxBlock/2, "small blocks are joined")
		}
	}
}

// A block whose names are removed one by one, beside full ones, does not stay as an empty block,
// which would mislead the search for other names.
func TestEmptyBlockIsRemoved(t *testing.T) {
	m := holding(t)
	blocks := len(m.names.blocks)
	for i := range manyLocks {
		if middle := m.names.blocks[blocks/2]; slices.Contains(middle, lockNumber(i)) {
			m.Apply(&Release{Session: ann, Incarnation: 1, Nonce: engine.Nonce(i + 1)})
			require.Len(t, m.List("", lockNumber(i), 10), 10)
		}
		if len(m.names.blocks) < blocks {
			break
		}
	}
	require.Len(t, m.names.blocks, blocks-1)
	require.Equal(t, listed(m, "", "", manyLocks), m.names.page("", "", manyLocks, m.locks))
}

func name(random *rand.Rand) fencing.Resource {
	return fencing.Resource(fmt.Sprintf("%c/%d", 'a'+random.IntN(2), random.IntN(5000)))
}

// BenchmarkList reads pages of 100 out of 100,000 locks. Between two pages one lock is added and
// one is removed.
func BenchmarkList(b *testing.B) {
	const locks = 100_000
	id := engine.SessionID{1}
	m := New()
	m.Apply(&OpenSession{Session: id, TTL: time.Minute})
	key := func(i int) fencing.Resource {
		return fencing.Resource(fmt.Sprintf("orders/region-%d/%08d", i%7, i))
	}
	acquire := func(i int) {
		m.Apply(&Acquire{Session: id, Incarnation: 1, Request: engine.Request{Nonce: engine.Nonce(i + 1),
			Resources: []fencing.Resource{key(i)}}})
	}
	for i := range locks {
		acquire(i)
	}
	next := locks
	b.ReportAllocs()
	for b.Loop() {
		acquire(next)
		m.Apply(&Release{Session: id, Incarnation: 1, Nonce: engine.Nonce(next - locks + 1)})
		next++
		if len(m.List("orders/", key(next*31%locks), 100)) == 0 {
			b.Fatal("an empty page")
		}
	}
}
