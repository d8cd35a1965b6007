package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/boltgate"
	"github.com/leased-project/leased/storagegate/callgate"
)

// flightsBucket holds the flights as JSON, by resource. The marks are in the
// bucket of boltgate.
var flightsBucket = []byte("leased_flights")

// journal keeps marks and flights in a bbolt file. What a method has confirmed
// is on disk. After the first failed write it refuses all others: bbolt may then
// show data that the disk does not have.
type journal struct {
	db   *bbolt.DB
	gate *boltgate.Gate

	failOnce sync.Once
	failed   chan struct{} // closed by the first failed write
}

func openJournal(path string, rule fencing.Rule) (*journal, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("open the journal %s: %w; run one proxy for each service", path, errOtherFile)
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
	return &journal{db: db, gate: boltgate.New(db, rule), failed: make(chan struct{})}, nil
}

// begin admits the token of f, raises the mark and notes f as in flight, in one
// transaction. A refusal changes nothing.
func (j *journal) begin(f Flight) error {
	note, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return j.attempt(func() error {
		return j.gate.Do(context.Background(), f.Resource, f.Token, func(tx *bbolt.Tx) error {
			return tx.Bucket(flightsBucket).Put([]byte(f.Resource), note)
		})
	})
}

// enter raises the mark for a holder that is about to read.
func (j *journal) enter(resource fencing.Resource, token fencing.Token) error {
	return j.attempt(func() error { return j.gate.Enter(context.Background(), resource, token) })
}

// note replaces the note of a flight.
func (j *journal) note(f Flight) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return j.update(func(tx *bbolt.Tx) error { return tx.Bucket(flightsBucket).Put([]byte(f.Resource), text) })
}

// forget removes the note of a flight that is over.
func (j *journal) forget(resource fencing.Resource) error {
	return j.update(func(tx *bbolt.Tx) error { return tx.Bucket(flightsBucket).Delete([]byte(resource)) })
}

// flights lists the notes.
func (j *journal) flights() (all []Flight, err error) {
	err = j.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(flightsBucket).ForEach(func(resource, text []byte) error {
			var f Flight
			if err := json.Unmarshal(text, &f); err != nil {
				return fmt.Errorf("read the note of a flight on %q: %w", resource, err)
			}
			all = append(all, f)
			return nil
		})
	})
	return all, err
}

func (j *journal) update(change func(*bbolt.Tx) error) error {
	return j.attempt(func() error { return j.db.Update(change) })
}

// attempt makes a change, if none has failed before. A refusal is no failure.
func (j *journal) attempt(change func() error) error {
	select {
	case <-j.failed:
		return fmt.Errorf("%w before; restart the proxy", ErrJournal)
	default:
	}
	err := change()
	if err == nil || callgate.Refusal(err) {
		return err
	}
	j.failOnce.Do(func() { close(j.failed) })
	return fmt.Errorf("%w: %w", ErrJournal, err)
}
