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

// Gate guards the objects of one bucket. Any number of processes can use gates on
// the same bucket. All methods are safe for concurrent use.
//
// Do is one conditional write. If the object changes in between, the write runs
// again. Enter and Reset rewrite the object with its current data.
type Gate struct {
	*storagegate.Base[*Tx]
	client Client
	bucket string
	rule   fencing.Rule
	key    func(fencing.Resource) string
}

// Option configures a Gate.
type Option func(*Gate)

// Keys sets the function that returns the key of a resource's object. Two
// resources must never have the same key.
func Keys(key func(fencing.Resource) string) Option { return func(g *Gate) { g.key = key } }

// Prefix adds a prefix such as "orders/" to the keys that Key returns.
func Prefix(prefix string) Option {
	return Keys(func(resource fencing.Resource) string { return prefix + Key(resource) })
}

// Key is the default key of a resource: its name with all bytes except lower case
// letters, digits, "-", "_" and inner dots escaped as %xx, because some stores
// keep objects as files. A name that becomes too long is replaced by "~" and its
// SHA-256.
func Key(resource fencing.Resource) string { return storagegate.FileName(resource) }

// New returns a Gate that applies rule to the objects of bucket.
func New(client Client, bucket string, rule fencing.Rule, options ...Option) *Gate {
	g := &Gate{client: client, bucket: bucket, rule: rule, key: Key}
	for _, option := range options {
		option(g)
	}
	g.Base = storagegate.NewBase(storagegate.Steps[*Tx]{Write: g.write, Lower: g.lower, Mark: g.mark})
	return g
}

// Tx is one write. It replaces the data of an object or keeps it.
type Tx struct {
	gate   *Gate
	ctx    context.Context // of Do; the Tx is not used after Do returns
	key    string
	object *object
	data   []byte
	wrote  bool
	err    error // of a failed Read; the write then fails
}

// Read returns the data that the write will replace, or nil if there is none. If
// Read fails, the whole write fails.
func (tx *Tx) Read() ([]byte, error) {
	data, err := tx.gate.get(tx.ctx, tx.key, tx.object)
	if err != nil {
		tx.err = err
	}
	return data, err
}

// Write sets the new data.
func (tx *Tx) Write(data []byte) { tx.data, tx.wrote = data, true }

// Attributes returns the attributes of the object. The write can change them;
// attributes that it does not change are kept. Adapt ContentEncoding if the
// encoding of the data changes.
func (tx *Tx) Attributes() *Attributes { return &tx.object.attributes }

func (g *Gate) write(
	ctx context.Context, resource fencing.Resource, token fencing.Token, write func(tx *Tx) error,
) error {
	return g.try(ctx, resource, func(key string, now *object) error {
		if err := g.rule.Admit(resource, now.mark, token); err != nil || write == nil && now.mark == token {
			return err
		}
		tx := &Tx{gate: g, ctx: ctx, key: key, object: now}
		if write != nil {
			if err := write(tx); err != nil && tx.err == nil {
				return err
			}
		}
		if tx.err != nil {
			return tx.err
		}
		if !tx.wrote { // raise the mark and keep the data
			data, err := tx.Read()
			if err != nil {
				return err
			}
			tx.data = data
		}
		return g.replace(ctx, key, &swap{base: now, data: tx.data, mark: token})
	})
}

func (g *Gate) lower(ctx context.Context, resource fencing.Resource, expected, to fencing.Token) error {
	return g.try(ctx, resource, func(key string, now *object) error {
		if err := storagegate.CompareMark(resource, now.mark, expected); err != nil {
			return err
		}
		data, err := g.get(ctx, key, now)
		if err != nil {
			return err
		}
		return g.replace(ctx, key, &swap{base: now, data: data, mark: to})
	})
}

func (g *Gate) mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	now, err := g.head(ctx, g.key(resource))
	if err != nil {
		return fencing.None, err
	}
	return now.mark, nil
}

// Read returns the data of the resource, or nil if there is no object. A resource
// that was only entered has empty data.
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

// replace commits a swap and keeps the tags of the object.
func (g *Gate) replace(ctx context.Context, key string, s *swap) error {
	s.nonce = newNonce()
	if err := g.readTags(ctx, key, s.base); err != nil {
		return err
	}
	return g.commit(ctx, key, s)
}

// try looks at the object and runs step. It repeats that while others change the
// object in between.
func (g *Gate) try(ctx context.Context, resource fencing.Resource, step func(key string, now *object) error) error {
	const longest = 100 * time.Millisecond
	key := g.key(resource)
	for pause := time.Millisecond; ; pause = min(2*pause, longest) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now, err := g.head(ctx, key)
		if err == nil {
			err = step(key, now)
		}
		if !errors.Is(err, errChanged) {
			if err != nil && ctx.Err() != nil &&
				!errors.Is(err, storagegate.ErrUncertain) && !errors.Is(err, context.Cause(ctx)) {
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
