package raftstore_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// A cluster of one node on a folder. Other nodes are opened on folders of their
// own and call Join. Programs use a Backend through lease.Client, which renews
// sessions and repeats calls.
func Example() {
	dir, err := os.MkdirTemp("", "raftstore")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	node, err := raftstore.Open(raftstore.Config{ID: "n1", Dir: dir, Address: "127.0.0.1:0",
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	if err := node.Bootstrap(); err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if _, _, err := node.AwaitLeader(ctx); err != nil {
		log.Fatal(err)
	}

	backend, err := raftstore.NewBackend(node)
	if err != nil {
		log.Fatal(err)
	}
	session, err := backend.Open(ctx, engine.SessionConfig{ID: engine.NewSessionID(), TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	grant, err := session.Acquire(ctx, engine.Request{Nonce: 1, Resources: []fencing.Resource{"jobs/7"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("token", grant.Token, "in", grant.Mode, "mode")
	fmt.Println(session.Release(ctx, engine.Held{Nonce: 1}), session.Close(ctx))
	// Output:
	// token 1 in correctness mode
	// <nil> <nil>
}
