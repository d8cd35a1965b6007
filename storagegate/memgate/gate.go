package memgate

import (
	"context"
	"sync"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

// Gate holds a value for each resource. A value is changed only under a token
// that the rule admits. Check and write happen under a lock per resource, so
// writers of different resources do not wait for each other.
//
// The write of Do changes the value in place. It works on a copy, which replaces
// the value if the write returns nil. The copy is a plain assignment: if V contains
// a map, a slice or a pointer, replace it instead of changing what it refers to.
type Gate[V any] struct {
	*storagegate.Base[*V]
	rule  fencing.Rule
	cells sync.Map // fencing.Resource to *cell[V]; never removed, because marks are never deleted
}

// cell holds one resource. The channel is its lock: unlike with a mutex, a wait
// for it can be cancelled.
type cell[V any] struct {
	lock  chan struct{}
	mark  fencing.Token
	value V
	next  V // the copy that a write works on; kept here to avoid an allocation per write
}

// New returns an empty gate.
func New[V any](rule fencing.Rule) *Gate[V] {
	g := &Gate[V]{rule: rule}
	g.Base = storagegate.NewBase(storagegate.Steps[*V]{Write: g.write, Lower: g.lower, Mark: g.mark})
	return g
}

func (g *Gate[V]) write(
	ctx context.Context, resource fencing.Resource, token fencing.Token, write func(value *V) error,
) error {
	c, err := g.locked(ctx, resource, func(mark fencing.Token) error { return g.rule.Admit(resource, mark, token) })
	if err != nil {
		return err
	}
	defer c.unlock()
	if c.next = c.value; write != nil {
		if err := write(&c.next); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c.value, c.mark = c.next, token
	return nil
}

func (g *Gate[V]) lower(ctx context.Context, resource fencing.Resource, expected, to fencing.Token) error {
	c, err := g.locked(ctx, resource, func(mark fencing.Token) error {
		return storagegate.CompareMark(resource, mark, expected)
	})
	if err != nil {
		return err
	}
	defer c.unlock()
	c.mark = to
	return nil
}

func (g *Gate[V]) mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	_, mark, err := g.Get(ctx, resource)
	return mark, err
}

// Get returns the value of the resource together with its mark. A resource that
// was never written has the zero value.
func (g *Gate[V]) Get(ctx context.Context, resource fencing.Resource) (V, fencing.Token, error) {
	var none V
	if err := resource.Validate(); err != nil {
		return none, fencing.None, err
	}
	found, ok := g.cells.Load(resource)
	if !ok {
		return none, fencing.None, ctx.Err()
	}
	c := found.(*cell[V])
	if err := c.acquire(ctx); err != nil {
		return none, fencing.None, err
	}
	defer c.unlock()
	return c.value, c.mark, nil
}

// locked locks the cell of the resource if accept accepts its mark. A resource whose
// first write is refused gets no cell.
func (g *Gate[V]) locked(
	ctx context.Context, resource fencing.Resource, accept func(mark fencing.Token) error,
) (*cell[V], error) {
	found, ok := g.cells.Load(resource)
	if !ok {
		if err := accept(fencing.None); err != nil {
			return nil, err
		}
		found, _ = g.cells.LoadOrStore(resource, &cell[V]{lock: make(chan struct{}, 1)})
	}
	c := found.(*cell[V])
	if err := c.acquire(ctx); err != nil {
		return nil, err
	}
	if err := accept(c.mark); err != nil {
		c.unlock()
		return nil, err
	}
	return c, nil
}

func (c *cell[V]) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select { // the common case, without the context's channel
	case c.lock <- struct{}{}:
		return nil
	default:
	}
	select {
	case c.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *cell[V]) unlock() { <-c.lock }
