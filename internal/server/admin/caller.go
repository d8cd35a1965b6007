package admin

import (
	"context"
	"fmt"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore/transport"
)

// checkCaller refuses a call that only a member makes for itself, if the caller presented
// a certificate that does not name the member. For a caller without certificate, only the
// rights of its user count. A follower that forwards such a call over HTTP presents its
// own certificate, so the call must go to the leader; members use gRPC and do that.
func checkCaller(ctx context.Context, id string) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	secure, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(secure.State.VerifiedChains) == 0 {
		return nil
	}
	leaf := secure.State.VerifiedChains[0][0]
	if transport.Names(leaf, id) {
		return nil
	}
	return fmt.Errorf("%w: a call of member %q came with a certificate (%s) that names the members %q; use a "+
		"certificate with the URI %s",
		engine.ErrForbidden, id, leaf.Subject, transport.MemberIDs(leaf), transport.MemberURI(id))
}
