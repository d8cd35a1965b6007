package member

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"sync"

	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/remote/secret"
	"github.com/leased-project/leased/lease/remote/wire"
)

// peers are the APIs that this member was told of, its own perhaps among them.
type peers struct {
	addresses []string
	tls       func() *tls.Config // nil is no TLS
	secret    func() string      // empty is none
	logger    *slog.Logger
}

// ask asks all at once how they are, and returns the answers by address.
func (p *peers) ask(ctx context.Context) map[string]*pb.StatusResponse {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	answers := map[string]*pb.StatusResponse{}
	for _, address := range p.addresses {
		wg.Go(func() {
			conn, err := p.dial(address)
			if err != nil {
				return
			}
			defer conn.Close()
			status, err := pb.NewClusterServiceClient(conn).Status(ctx, &pb.StatusRequest{})
			if errors.Is(wire.FromStatus(err), wire.ErrUnauthenticated) {
				p.logger.Warn("a member does not know the secret of this one", "member", address, "error", err,
					"rule", "secret-file must have the secret of a user of all members")
			}
			if err != nil {
				return // it is asked again
			}
			mu.Lock()
			defer mu.Unlock()
			answers[address] = status
		})
	}
	wg.Wait()
	return answers
}

func (p *peers) dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address, secret.DialOptions(p.tls(), p.secret())...)
}
