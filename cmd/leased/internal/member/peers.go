package member

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"sync"

	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/wire"
)

// peers are the addresses in join, possibly including this member.
type peers struct {
	addresses []string
	tls       func() *tls.Config // returns nil without TLS
	secret    func() string      // returns "" without users
	logger    *slog.Logger
}

// statuses requests the status of all peers concurrently and returns the answers by
// address.
func (p *peers) statuses(ctx context.Context) map[string]*pb.StatusResponse {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	answers := map[string]*pb.StatusResponse{}
	for _, address := range p.addresses {
		wg.Go(func() {
			conn, err := grpc.NewClient("passthrough:///"+address, secret.DialOptions(p.tls(), p.secret())...)
			if err != nil {
				return
			}
			defer conn.Close()
			status, err := pb.NewClusterServiceClient(conn).Status(ctx, &pb.StatusRequest{})
			if errors.Is(wire.FromStatus(err), wire.ErrUnauthenticated) {
				p.logger.Warn("another member rejects the secret of this member", "member", address, "error", err,
					"hint", "secret-file must contain the secret of a user that all members have")
			}
			if err != nil {
				return // the caller retries
			}
			mu.Lock()
			defer mu.Unlock()
			answers[address] = status
		})
	}
	wg.Wait()
	return answers
}
