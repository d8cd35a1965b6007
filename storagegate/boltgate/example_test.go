package boltgate_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/boltgate"
)

func ExampleGate() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "bolt")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := bolt.Open(filepath.Join(dir, "accounts.db"), 0o600, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	gate := boltgate.New(db, fencing.Rule{})
	for _, token := range []fencing.Token{34, 33} { // the newer holder, then the paused one
		err := gate.Do(ctx, "account/7", token, func(tx *bolt.Tx) error {
			accounts, err := tx.CreateBucketIfNotExists([]byte("accounts"))
			if err != nil {
				return err
			}
			return accounts.Put([]byte("7"), []byte("90"))
		})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// stale fencing token 33 for "account/7": 34 has been admitted; the lease is lost, stop writing
}
