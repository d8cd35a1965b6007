package logstore_test

import (
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/leased-project/leased/raftstore/logstore"
)

// A folder keeps the kind of log store that it was created with.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "logstore")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := logstore.Open(logstore.WAL, dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	last, err := store.Log.LastIndex()
	fmt.Println("last entry:", last, err)
	if err := store.Close(); err != nil {
		log.Fatal(err)
	}
	_, err = logstore.Open(logstore.Bolt, dir, nil)
	fmt.Println(errors.Is(err, logstore.ErrKind))
	// Output:
	// last entry: 0 <nil>
	// true
}
