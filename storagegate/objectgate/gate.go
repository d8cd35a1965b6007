package objectgate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

// Gate guards objects in one bucket. Gates of any number of processes may share
// it. All methods may be called concurrently.
type Gate struct {
	storagegate.Monitor
	client Client
	bucket string
	rule   fencing.Rule
	key    func(fencing.Resource) string
}

var _ storagegate.Gate[*Tx] = (*Gate)(nil)

// Option changes a Gate.
type Option func(*Gate)

// Keys sets the function that names the object of a resource. Two resources
// must never have the same object.
func Keys(key func(fencing.Resource) string) Option { return func(g *Gate) { g.key = key } }

// Prefix puts a text such as "orders/" in front of the keys that Key makes.
func Prefix(prefix string) Option {
	return Keys(func(resource fencing.Resource) string { return prefix + Key(resource) })
}

// New returns a Gate that applies rule to the objects of bucket.
func New(client Client, bucket string, rule fencing.Rule, options ...Option) *Gate {
	g := &Gate{client: client, bucket: bucket, rule: rule, key: Key}
	for _, option := range options {
		option(g)
	}
	return g
}

// Tx is one write. It replaces the data of an object, or leaves it as it is.
type Tx struct {
	gate   *Gate
	ctx    context.Context // of Do, which hands the Tx out and takes it back
	key    string
	object *object
	data   []byte
	wrote  bool
	err    error
}

// Read returns the data that the write is going to replace, nil if there is
// none yet.
func (tx *Tx) Read() ([]byte, error) {
	data, err := tx.gate.get(tx.ctx, tx.key, tx.object)
	if err != nil {
		tx.err = err
	}
	return data, err
}

// Write sets the data that replaces what is there.
func (tx *Tx) Write(data []byte) { tx.data, tx.wrote = data, true }

// Attributes are what the object carries beside its data, for the write to look
// at and to change. What it leaves alone stays as it is: mind the encoding when
// the data changes.
func (tx *Tx) Attributes() *Attributes { return &tx.object.attributes }

// Do admits token and stores what write has handed to tx, in one conditional
// write. If somebody else writes at the same time, write runs again.
func (g *Gate) Do(ctx context.Context, resource fencing.Resource, token fencing.Token, write func(tx *Tx) error) error {
	if err := check(resource, token); err != nil {
		return err
	}
	return g.try(ctx, resource, func(key string, now *object) error {
		if err := g.rule.Admit(resource, now.mark, token); err != nil {
			return g.Record(resource, token, err)
		}
		tx := &Tx{gate: g, ctx: ctx, key: key, object: now}
		if err := write(tx); err != nil && tx.err == nil {
			return err
		}
		if tx.err != nil {
			return tx.err
		}
		if !tx.wrote { // the mark is to be raised all the same
			data, err := tx.Read()
			if err != nil {
				return err
			}
			tx.data = data
		}
		return g.raise(ctx, resource, token, key, &swap{base: now, data: tx.data})
	})
}

// Enter raises the mark to token. It rewrites the object with the data it has.
func (g *Gate) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if err := check(resource, token); err != nil {
		return err
	}
	return g.try(ctx, resource, func(key string, now *object) error {
		if err := g.rule.Enter(resource, now.mark, token); err != nil || now.mark == token {
			return g.Record(resource, token, err)
		}
		data, err := g.get(ctx, key, now)
		if err != nil {
			return err
		}
		return g.raise(ctx, resource, token, key, &swap{base: now, data: data})
	})
}

// Mark is the newest token admitted for the resource, None if there is none.
func (g *Gate) Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	now, err := g.see(ctx, resource)
	if err != nil {
		return fencing.None, err
	}
	return now.mark, nil
}

// Read returns the data of the resource, past the gate, nil if there is none.
// An object that the gate only entered has data of length 0.
func (g *Gate) Read(ctx context.Context, resource fencing.Resource) (data []byte, err error) {
	if err := resource.Validate(); err != nil {
		return nil, err
	}
	err = g.try(ctx, resource, func(key string, now *object) error {
		data, err = g.get(ctx, key, now)
		return err
	})
	return data, err
}

func (g *Gate) see(ctx context.Context, resource fencing.Resource) (*object, error) {
	if err := resource.Validate(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return g.head(ctx, g.key(resource))
}

// raise commits a swap under token and reports the decision.
func (g *Gate) raise(ctx context.Context, resource fencing.Resource, token fencing.Token, key string, s *swap) error {
	s.nonce, s.mark = newNonce(), token
	if err := g.readTags(ctx, key, s.base); err != nil {
		return err
	}
	if err := g.commit(ctx, key, s); err != nil {
		return err
	}
	return g.Record(resource, token, nil)
}

// try looks at the object and runs step, again and again while others change
// the object in between.
func (g *Gate) try(ctx context.Context, resource fencing.Resource, step func(key string, now *object) error) error {
	const longest = 100 * time.Millisecond
	key := g.key(resource)
	for pause := time.Millisecond; ; pause = min(2*pause, longest) {
		now, err := g.see(ctx, resource)
		if err == nil {
			err = step(key, now)
		}
		if !errors.Is(err, errChanged) {
			if err != nil && ctx.Err() != nil && !errors.Is(err, storagegate.ErrUncertain) && !errors.Is(err, context.Cause(ctx)) {
				err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
			}
			return err
		}
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func check(resource fencing.Resource, token fencing.Token) error {
	if err := resource.Validate(); err != nil {
		return err
	}
	_, err := token.Value()
	return err
}
