package remote_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/lease"
)

// A client that uses only locks in correctness mode can do without package client, and
// without Redis.
func ExampleNew() {
	ctx := context.Background()
	service, err := remote.New([]string{"10.0.0.1:7420", "10.0.0.2:7420", "10.0.0.3:7420"},
		remote.Config{TLS: &tls.Config{}, Secret: os.Getenv("LEASED_SECRET")})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close()
	locks, err := lease.New(service)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	err = locks.Do(ctx, "account/7", func(ctx context.Context, l *lease.Lease) error {
		return nil // write through a gate, with l.Token()
	})
	if err != nil {
		log.Fatal(err)
	}
}

// A call to a service that cannot be reached returns ErrUnavailable after the timeout.
func ExampleWithTimeout() {
	service, err := remote.New([]string{"127.0.0.1:1"}, remote.Config{Timeout: 100 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close()
	_, err = service.Inspect(context.Background(), "job")
	fmt.Println(errors.Is(err, lease.ErrUnavailable))
	// Output: true
}
