package boltgate

import (
	"context"
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

// Bucket is the name of the bucket with the marks. The key is the resource, and
// the value is the mark as a big-endian 64-bit integer.
const Bucket = "leased_marks"

// Gate gates transactions of a bbolt database. bbolt runs one read-write
// transaction at a time, so check and write are atomic.
//
// The write of Do must not commit or roll back, and must not change Bucket. The
// context ends a wait for another write of this gate, but not a wait for a
// transaction outside the gate.
type Gate struct {
	*storagegate.Base[*bolt.Tx]
	db   *bolt.DB
	rule fencing.Rule
	// writer is full while a write runs. Unlike bbolt's own lock, a wait for it
	// can be cancelled.
	writer chan struct{}
}

// New returns a gate over db.
func New(db *bolt.DB, rule fencing.Rule) *Gate {
	g := &Gate{db: db, rule: rule, writer: make(chan struct{}, 1)}
	g.Base = storagegate.NewBase(storagegate.Steps[*bolt.Tx]{Write: g.write, Lower: g.lower, Mark: g.mark})
	return g
}

func (g *Gate) write(
	ctx context.Context, resource fencing.Resource, token fencing.Token, write func(tx *bolt.Tx) error,
) error {
	return g.update(ctx, func(tx *bolt.Tx) error {
		if err := g.admit(tx, resource, token); err != nil || write == nil {
			return err
		}
		return write(tx)
	})
}

func (g *Gate) lower(ctx context.Context, resource fencing.Resource, expected, to fencing.Token) error {
	return g.update(ctx, func(tx *bolt.Tx) error {
		marks := tx.Bucket([]byte(Bucket))
		mark, err := read(marks, resource)
		if err == nil {
			err = storagegate.CompareMark(resource, mark, expected)
		}
		if err != nil {
			return err
		}
		return put(marks, resource, to)
	})
}

// update runs change in a read-write transaction.
func (g *Gate) update(ctx context.Context, change func(tx *bolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case g.writer <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-g.writer }()
	committing := false
	err := g.db.Update(func(tx *bolt.Tx) error {
		if err := ctx.Err(); err != nil { // the wait for bbolt's own lock may have been long
			return err
		}
		if err := change(tx); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		committing = true
		return nil
	})
	if err != nil && committing {
		return fmt.Errorf("commit the gated transaction: %w: %w", storagegate.ErrUncertain, err)
	}
	return err
}

// admit applies the rule in the transaction and raises the mark. It does not write
// the mark again for later writes of a holder.
func (g *Gate) admit(tx *bolt.Tx, resource fencing.Resource, token fencing.Token) error {
	marks := tx.Bucket([]byte(Bucket))
	mark, err := read(marks, resource)
	if err != nil {
		return err
	}
	if err := g.rule.Admit(resource, mark, token); err != nil || token == mark {
		return err
	}
	if marks == nil {
		if marks, err = tx.CreateBucket([]byte(Bucket)); err != nil {
			return fmt.Errorf("create the bucket for marks: %w", err)
		}
	}
	return put(marks, resource, token)
}

func put(marks *bolt.Bucket, resource fencing.Resource, mark fencing.Token) error {
	if err := marks.Put([]byte(resource), binary.BigEndian.AppendUint64(nil, uint64(mark))); err != nil {
		return fmt.Errorf("store the mark of %q: %w", string(resource), err)
	}
	return nil
}

func (g *Gate) mark(_ context.Context, resource fencing.Resource) (mark fencing.Token, err error) {
	err = g.db.View(func(tx *bolt.Tx) error {
		mark, err = read(tx.Bucket([]byte(Bucket)), resource)
		return err
	})
	return mark, err
}

func read(marks *bolt.Bucket, resource fencing.Resource) (fencing.Token, error) {
	if marks == nil {
		return fencing.None, nil
	}
	value := marks.Get([]byte(resource))
	if value == nil {
		return fencing.None, nil
	}
	if len(value) != 8 || fencing.Token(binary.BigEndian.Uint64(value)) > fencing.MaxToken {
		return fencing.None, fmt.Errorf("read the mark of %q: %w: bucket %s contains %x, which is not a mark; "+
			"find out which program wrote it",
			string(resource), fencing.ErrInvalidToken, Bucket, value)
	}
	return fencing.Token(binary.BigEndian.Uint64(value)), nil
}
