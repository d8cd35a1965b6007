package member

import (
	"context"
	"crypto/tls"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/leased-project/leased/api/leased/v1"
)

// peers are the APIs that this member was told of, its own perhaps among them.
type peers struct {
	addresses []string
	tls       func() *tls.Config // nil is no TLS
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
	how := insecure.NewCredentials()
	if config := p.tls(); config != nil {
		how = credentials.NewTLS(config)
	}
	return grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(how))
}
