package grpcgate_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/servicetest"
	"github.com/leased-project/leased/storagegate/callgate"
	"github.com/leased-project/leased/storagegate/grpcgate"
)

// signedContext returns the context of a call with a text as its token.
func signedContext(ctx context.Context, text string) context.Context {
	if text == "" {
		return ctx
	}
	return grpcgate.WithSignedToken(ctx, text)
}

func TestSignedTokens(t *testing.T) {
	s := serve(t, fencing.Rule{}, callgate.WithVerifier(servicetest.NewVerifier(t)))
	servicetest.RequireSigned(t, s.store, s.Counts, func(text, value string) error {
		_, err := s.call(signedContext(t.Context(), text), "Put", servicetest.Message(servicetest.SignedResource, value))
		return err
	})
}

func TestSignedTokensOfStreams(t *testing.T) {
	s := serve(t, fencing.Rule{}, callgate.WithVerifier(servicetest.NewVerifier(t)))
	servicetest.RequireSigned(t, s.store, s.Counts, func(text, value string) error {
		stream, err := s.conn.NewStream(signedContext(t.Context(), text), &grpc.StreamDesc{ClientStreams: true,
			ServerStreams: true}, "/test.Store/Append")
		require.NoError(t, err)
		err = send(t, stream, servicetest.SignedResource, value)
		require.NotEqual(t, codes.Internal, status.Code(err))
		return convert(err)
	})
}
