package perlease_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/perlease"
)

// An acquire that is repeated with the same nonce returns the same grant.
func ExampleNewSession() {
	ctx := context.Background()
	session := perlease.NewSession(newMemory(), engine.SessionConfig{ID: engine.NewSessionID(), TTL: 10 * time.Second, Clock: engine.SystemClock()})
	request := engine.Request{Nonce: 1, Resources: []fencing.Resource{"report/daily"}}
	for range 2 {
		grant, err := session.Acquire(ctx, request)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("token", grant.Token)
	}
	extended, err := session.Renew(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("renewed attempts", extended)
	if err := session.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// token 1
	// token 1
	// renewed attempts [1]
}
