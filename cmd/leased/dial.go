package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
)

// dial connects a client to the service, and to the Redis nodes that the service names.
func (a *access) dial(ctx context.Context, options ...client.Option) (*lease.Client, error) {
	addresses, config, own, err := a.service()
	if err != nil {
		return nil, err
	}
	nodes, err := a.redisNodes()
	if err != nil {
		return nil, err
	}
	options = append(options, client.WithRedis(nodes.Options))
	if config != nil {
		options = append(options, client.WithTLS(config))
	}
	if own != "" {
		options = append(options, client.WithSecret(own))
	}
	if nodes.Insecure {
		options = append(options, client.WithRedisInsecure())
	}
	return client.Dial(ctx, addresses, options...)
}

// service returns the addresses of the service, the TLS configuration (nil for none) and the
// secret of the user (empty for none).
func (a *access) service() (addresses []string, config *tls.Config, own string, err error) {
	if addresses, err = a.endpoints(); err != nil {
		return nil, nil, "", err
	}
	if config, err = a.tls(); err != nil {
		return nil, nil, "", err
	}
	own, err = a.secret()
	return addresses, config, own, err
}

// topology returns the policies that the first member in reach has, or none and the
// reason. If it must be sure, it asks the leader whether there are none: another member may not have applied its log
// yet.
func (a *access) topology(ctx context.Context, sure bool) (topology engine.Topology, err error) {
	if a.postgres() != "" { // a database has no policies
		return engine.Topology{}, nil
	}
	// The error of a connection says more than this one.
	ctx, cancel := context.WithTimeoutCause(ctx, 2*connectTimeout, wire.ErrUnreachable)
	defer cancel()
	err = a.call(ctx, func(service api) error {
		read := func() (err error) {
			message, err := first(ctx, service.WatchTopology, &pb.WatchTopologyRequest{})
			if err == nil {
				topology, err = wire.ToTopology(message)
			}
			return err
		}
		if err := read(); err != nil || topology.Version > 0 || !sure {
			return err
		}
		if _, err := service.ListPolicies(ctx, &pb.ListPoliciesRequest{}); err != nil {
			return err
		}
		return read()
	})
	return topology, err
}

// first returns the first message of a stream.
func first[Request, Message any](ctx context.Context, open func(context.Context, *Request,
	...grpc.CallOption) (grpc.ServerStreamingClient[Message], error), request *Request) (*Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := open(ctx, request)
	if err != nil {
		return nil, err
	}
	return stream.Recv()
}

// api has the methods of all services of a member.
type api struct {
	pb.LeaseServiceClient
	pb.PolicyServiceClient
	pb.ClusterServiceClient
	pb.RedisServiceClient
}

func newAPI(conn grpc.ClientConnInterface) api {
	conn = sendable{conn}
	return api{pb.NewLeaseServiceClient(conn), pb.NewPolicyServiceClient(conn), pb.NewClusterServiceClient(conn),
		pb.NewRedisServiceClient(conn)}
}

// sendable is a connection that refuses messages which cannot be encoded, such as a name that is not UTF-8. The error
// of gRPC for them looks like a lost answer, although nothing was sent.
type sendable struct{ grpc.ClientConnInterface }

func (c sendable) Invoke(ctx context.Context, method string, request, answer any, options ...grpc.CallOption) error {
	if err := encodable(request); err != nil {
		return err
	}
	return c.ClientConnInterface.Invoke(ctx, method, request, answer, options...)
}

func (c sendable) NewStream(ctx context.Context, description *grpc.StreamDesc, method string,
	options ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := c.ClientConnInterface.NewStream(ctx, description, method, options...)
	return sendableStream{stream}, err
}

type sendableStream struct{ grpc.ClientStream }

func (s sendableStream) SendMsg(message any) error {
	if err := encodable(message); err != nil {
		return err
	}
	return s.ClientStream.SendMsg(message)
}

// encodable rejects a message that cannot be encoded.
func encodable(message any) error {
	if _, err := proto.Marshal(message.(proto.Message)); err != nil {
		return fmt.Errorf("%w: %w", lease.ErrInvalid, err)
	}
	return nil
}

// method is a unary method of the API, such as api.Acquire.
type method[Request, Answer any] func(api, context.Context, Request, ...grpc.CallOption) (Answer, error)

// fetch calls a method of the API and returns the answer.
func fetch[Request, Answer any](ctx context.Context, a *access, method method[Request, Answer],
	request Request) (got Answer, err error) {
	err = a.call(ctx, func(service api) (err error) {
		got, err = method(service, ctx, request)
		return err
	})
	return got, err
}

// receive passes on the messages of a stream until the stream breaks. Members do not end streams: if
// one does, the caller does not know what it missed.
func receive[Message any](stream grpc.ServerStreamingClient[Message], each func(*Message) error) error {
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return lease.ErrUncertain
		}
		if err == nil {
			err = each(message)
		}
		if err != nil {
			return err
		}
	}
}
