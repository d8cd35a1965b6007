package gateproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/boltgate"
	"github.com/leased-project/leased/storagegate/callgate"
)

// flightsBucket maps resources to flights in JSON. The marks are in the bucket of
// boltgate.
var flightsBucket = []byte("leased_flights")

// journal stores marks and flights in a bbolt file. Changes are on disk when a
// method returns. After the first failed write it refuses all others, because
// bbolt may then show data that is not on disk.
type journal struct {
	db   *bbolt.DB
	gate *boltgate.Gate

	failed context.Context // ends with the first failed write
	fail   context.CancelFunc
}

func openJournal(path string, rule fencing.Rule) (*journal, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("open the journal %s: %w; run one proxy for each service", path, errLocked)
	}
	if err != nil {
		return nil, fmt.Errorf("open the journal %s: %w", path, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(flightsBucket)
		return err
	})
	if err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("prepare the journal %s: %w", path, err)
	}
	failed, fail := context.WithCancel(context.Background())
	return &journal{db: db, gate: boltgate.New(db, rule), failed: failed, fail: fail}, nil
}

// begin admits the token of f, raises the mark and records f as in flight, in
// one transaction. A refusal changes nothing.
func (j *journal) begin(f Flight) error {
	return j.write(func() error {
		return j.gate.Do(context.Background(), f.Resource, f.Token, f.store)
	})
}

// enter raises the mark for a holder that is about to read.
func (j *journal) enter(resource fencing.Resource, token fencing.Token) error {
	return j.write(func() error { return j.gate.Enter(context.Background(), resource, token) })
}

// reset lowers the mark of a resource. If the mark or the arguments do not fit, it
// changes nothing.
func (j *journal) reset(resource fencing.Resource, expected, to fencing.Token) error {
	var refused error
	err := j.write(func() error {
		err := j.gate.Reset(context.Background(), resource, expected, to)
		if errors.Is(err, storagegate.ErrMarkChanged) || errors.Is(err, storagegate.ErrNotLower) {
			refused, err = err, nil
		}
		return err
	})
	return errors.Join(err, refused)
}

// put replaces the record of a flight.
func (j *journal) put(f Flight) error {
	return j.write(func() error { return j.db.Update(f.store) })
}

func (f Flight) store(tx *bbolt.Tx) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return tx.Bucket(flightsBucket).Put([]byte(f.Resource), text)
}

// remove removes the record of a flight that has ended.
func (j *journal) remove(resource fencing.Resource) error {
	return j.write(func() error {
		return j.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(flightsBucket).Delete([]byte(resource)) })
	})
}

// flights returns all records.
func (j *journal) flights() (all []Flight, err error) {
	err = j.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(flightsBucket).ForEach(func(resource, text []byte) error {
			var f Flight
			if err := json.Unmarshal(text, &f); err != nil {
				return fmt.Errorf("read the flight of %q: %w", resource, err)
			}
			all = append(all, f)
			return nil
		})
	})
	return all, err
}

// write makes a change unless an earlier one has failed. A refusal is not a
// failure.
func (j *journal) write(change func() error) error {
	if j.failed.Err() != nil {
		return fmt.Errorf("%w earlier; restart the proxy", ErrJournal)
	}
	err := change()
	if err == nil || callgate.Refusal(err) {
		return err
	}
	j.fail()
	return fmt.Errorf("%w: %w", ErrJournal, err)
}
