package boltgate

import (
	"context"
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

// Bucket is the name of the bucket that holds the marks: the name of the
// resource as key, eight bytes of the mark, largest first, as value.
const Bucket = "leased_marks"

// Gate gates transactions of a bbolt database. bbolt has one writer at a time,
// and that is the lock that check and write share.
type Gate struct {
	storagegate.Monitor
	db   *bolt.DB
	rule fencing.Rule
	// turn is held by the writer, so that those who wait for it can stop
	// waiting. bbolt's own lock cannot be given up.
	turn chan struct{}
}

var _ storagegate.Gate[*bolt.Tx] = (*Gate)(nil)

// New returns a gate over db. The zero Rule has no bound on the jump.
func New(db *bolt.DB, rule fencing.Rule) *Gate {
	return &Gate{db: db, rule: rule, turn: make(chan struct{}, 1)}
}

// Do implements storagegate.Gate. write must not commit or roll back, and must
// leave Bucket alone. Waiting for another writer of this gate ends with the
// context; waiting for a writer outside it does not.
func (g *Gate) Do(ctx context.Context, resource fencing.Resource, token fencing.Token, write func(tx *bolt.Tx) error) error {
	if err := valid(resource, token); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-g.turn }()
	committing := false
	err := g.db.Update(func(tx *bolt.Tx) error {
		if err := ctx.Err(); err != nil { // bbolt's own lock may have taken long
			return err
		}
		if err := g.admit(tx, resource, token); err != nil {
			return err
		}
		if err := write(tx); err != nil {
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
	return g.Record(resource, token, err)
}

// admit applies the rule inside the transaction, and raises the mark. A
// holder's later writes find it raised already and leave its page alone.
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
			return fmt.Errorf("make the bucket of the marks: %w", err)
		}
	}
	if err := marks.Put([]byte(resource), binary.BigEndian.AppendUint64(nil, uint64(token))); err != nil {
		return fmt.Errorf("raise the mark of %q: %w", string(resource), err)
	}
	return nil
}

// Enter implements storagegate.Gate.
func (g *Gate) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if token != fencing.None {
		return g.Do(ctx, resource, token, func(*bolt.Tx) error { return nil })
	}
	mark, err := g.Mark(ctx, resource)
	if err != nil {
		return err
	}
	return g.Record(resource, token, g.rule.Enter(resource, mark, token))
}

// Mark implements storagegate.Gate.
func (g *Gate) Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	if err := resource.Validate(); err != nil {
		return fencing.None, err
	}
	if err := ctx.Err(); err != nil {
		return fencing.None, err
	}
	var mark fencing.Token
	err := g.db.View(func(tx *bolt.Tx) (err error) {
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
		return fencing.None, fmt.Errorf("read the mark of %q: %w: bucket %s holds %x; was it written by something else?",
			string(resource), fencing.ErrInvalidToken, Bucket, value)
	}
	return fencing.Token(binary.BigEndian.Uint64(value)), nil
}

// valid checks what no mark has to be read for.
func valid(resource fencing.Resource, token fencing.Token) error {
	if err := resource.Validate(); err != nil {
		return err
	}
	_, err := token.Value()
	return err
}
