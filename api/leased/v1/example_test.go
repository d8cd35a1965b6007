package leasedv1_test

import (
	"bytes"
	"context"
	"fmt"
	"log"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	leasedv1 "github.com/leased-project/leased/api/leased/v1"
)

// A program that calls the API itself must renew the lease before its TTL passes. Go
// programs use package client instead, which does that.
func ExampleNewLeaseServiceClient() {
	ctx := context.Background()
	conn, err := grpc.NewClient("127.0.0.1:7420", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	leases := leasedv1.NewLeaseServiceClient(conn)
	granted, err := leases.Acquire(ctx, &leasedv1.AcquireRequest{Resource: "jobs/42", Ttl: "30s"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(granted.Token) // for the gate
	_, err = leases.Release(ctx, &leasedv1.ReleaseRequest{SessionId: granted.SessionId, Resource: "jobs/42",
		Token: granted.Token})
	if err != nil {
		log.Fatal(err)
	}
}

// A generator of clients reads the description.
func Example_openAPI() {
	fmt.Println(bytes.Contains(leasedv1.OpenAPI, []byte("/v1/acquire:")))
	// Output: true
}
