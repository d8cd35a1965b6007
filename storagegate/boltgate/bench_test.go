package boltgate_test

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/boltgate"
	"github.com/leased-project/leased/storagegate/gatetest"
)

// BenchmarkBolt compares a durable write with and without a gate.
// Run with: go test -run '^$' -bench . ./storagegate/boltgate
func BenchmarkBolt(b *testing.B) {
	db := open(b, filepath.Join(b.TempDir(), "gate.db"), false)
	gate := boltgate.New(db, fencing.Rule{})
	const count = 1024
	var names [count]fencing.Resource
	for i := range names {
		names[i] = fencing.Resource(fmt.Sprintf("account/%d", i))
	}
	if err := db.Update(func(tx *bolt.Tx) error {
		for i := range names {
			if err := pay(tx, i, 0); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	for i := range names {
		if err := gate.Enter(b.Context(), names[i], 34); err != nil {
			b.Fatal(err)
		}
	}
	gatetest.Compare(b, 1, func(_, n int) error {
		return db.Update(func(tx *bolt.Tx) error { return pay(tx, n%count, n) })
	}, func(_, n int) error {
		return gate.Do(b.Context(), names[n%count], 34, func(tx *bolt.Tx) error { return pay(tx, n%count, n) })
	})
}

func pay(tx *bolt.Tx, account, amount int) error {
	b, err := tx.CreateBucketIfNotExists(contents)
	if err != nil {
		return err
	}
	return b.Put(binary.BigEndian.AppendUint64(nil, uint64(account)), binary.BigEndian.AppendUint64(nil, uint64(amount)))
}
