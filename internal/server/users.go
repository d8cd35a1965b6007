package server

import (
	"context"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/secret"
	"github.com/leased-project/leased/lease/remote/wire"
)

// User is a caller that is let in.
type User struct {
	Name   string
	Hash   secret.Hash // of the secret
	Member bool        // members of the cluster call as this user
}

// Users are the callers that are let in. They all may do everything, except what
// needs the account of a member, see forMembers. UserFrom returns the name of a
// call's user.
type Users struct {
	current atomic.Pointer[[]*account]
}

// account is a user until it is removed.
type account struct {
	User
	ctx  context.Context // ends when it is removed
	gone context.CancelCauseFunc
}

// NewUsers returns a list of users.
func NewUsers(list []User) *Users {
	u := &Users{}
	u.current.Store(&[]*account{})
	u.Replace(list)
	return u
}

// Replace takes another list. It ends the streams, watches and waiting calls of
// users that are not in it, or that have changed. It is for one caller at a time.
func (u *Users) Replace(list []User) {
	old := *u.current.Load()
	kept := make(map[User]*account, len(old))
	for _, a := range old {
		kept[a.User] = a
	}
	fresh := make([]*account, 0, len(list))
	for _, user := range list {
		a := kept[user]
		if a == nil {
			a = &account{User: user}
			a.ctx, a.gone = context.WithCancelCause(context.Background())
		}
		delete(kept, user)
		fresh = append(fresh, a)
	}
	u.current.Store(&fresh)
	for _, a := range kept {
		a.gone(fmt.Errorf("%w: user %s was removed, or is not as it was", engine.ErrUncertain, a.Name))
	}
}

// find returns the account whose secret a header has. All hashes are compared, each
// in constant time, so that the duration tells nothing about any of them.
func (u *Users) find(header string) (*account, error) {
	kind, text, _ := strings.Cut(header, " ")
	switch {
	case header == "":
		return nil, fmt.Errorf("%w: the call has no secret", wire.ErrUnauthenticated)
	case !strings.EqualFold(kind, "Bearer"):
		return nil, fmt.Errorf("%w: the header \"Authorization\" must be of the kind Bearer", wire.ErrUnauthenticated)
	}
	if err := secret.Check(text); err != nil {
		return nil, fmt.Errorf("%w: %w", wire.ErrUnauthenticated, err)
	}
	hash := secret.HashOf(text)
	var found *account
	for _, a := range *u.current.Load() {
		if subtle.ConstantTimeCompare(hash[:], a.Hash[:]) == 1 {
			found = a
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: no user has this secret", wire.ErrUnauthenticated)
	}
	return found, nil
}

// userKey is the key of the account in a context.
type userKey struct{}

// UserFrom returns the name of the user whose call a context belongs to. ok is false
// if the service has no users, or the call is the service's own.
func UserFrom(ctx context.Context) (name string, ok bool) {
	a, ok := ctx.Value(userKey{}).(*account)
	if !ok {
		return "", false
	}
	return a.Name, true
}

// admit lets a call in: its context carries the name, and ends with the account.
// The caller must call done.
func (u *Users) admit(ctx context.Context, header string) (admitted context.Context, done func(), err error) {
	if u == nil {
		return ctx, func() {}, nil
	}
	a, err := u.find(header)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, userKey{}, a))
	stop := context.AfterFunc(a.ctx, func() { cancel(context.Cause(a.ctx)) })
	return ctx, func() { stop(); cancel(nil) }, nil
}

// removed returns the error of a call whose user was removed while it ran: it may
// have taken effect.
func removed(ctx context.Context, err error) error {
	a, ok := ctx.Value(userKey{}).(*account)
	if err == nil || !ok || a.ctx.Err() == nil {
		return err
	}
	return context.Cause(a.ctx)
}

// open are the methods that anyone may call: the supervisor of the process has no
// account.
var open = map[string]bool{
	pb.ClusterService_Health_FullMethodName:                         true,
	grpc_health_v1.Health_Check_FullMethodName:                      true,
	grpc_health_v1.Health_Watch_FullMethodName:                      true,
	http.MethodGet + " /healthz":                                    true,
	http.MethodPost + " /v1/health":                                 true,
	http.MethodPost + " " + pb.ClusterService_Health_FullMethodName: true,
}

// forMembers are the methods that need the account of a member. Each can say
// where members and clients connect to and show their secrets: Join makes this
// member show its own, a snapshot has the addresses of all members, and SetFleet
// names the Redis nodes.
var forMembers = map[string]bool{
	pb.ClusterService_AddLearner_FullMethodName:      true,
	pb.ClusterService_Promote_FullMethodName:         true,
	pb.ClusterService_Announce_FullMethodName:        true,
	pb.ClusterService_Join_FullMethodName:            true,
	pb.ClusterService_RestoreSnapshot_FullMethodName: true,
	pb.RedisService_SetFleet_FullMethodName:          true,
}

// mayCall refuses methods that need the account of a member.
func mayCall(ctx context.Context, method string) error {
	a, ok := ctx.Value(userKey{}).(*account)
	if !ok || a.Member || !forMembers[method] {
		return nil
	}
	return fmt.Errorf("%w: %s is for the account of a member, and %s is none; use the secret of one that `leased user add --member` has made",
		engine.ErrInvalid, method, a.Name)
}

// headerOf returns the authorization header of a gRPC call.
func headerOf(ctx context.Context) string {
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) == 1 {
		return values[0]
	}
	return ""
}

// unaryUsers authenticates a unary call.
func (s *Server) unaryUsers(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if s.config.Users == nil || open[info.FullMethod] {
		return handler(ctx, request)
	}
	ctx, done, err := s.config.Users.admit(ctx, headerOf(ctx))
	if err != nil {
		return nil, err
	}
	defer done()
	if err := mayCall(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	response, err := handler(ctx, request)
	return response, removed(ctx, err)
}

// streamUsers authenticates a stream, and ends it when its user is removed. The
// handler may be waiting for a message of the client then; it ends when gRPC has
// ended the stream.
func (s *Server) streamUsers(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if s.config.Users == nil || open[info.FullMethod] {
		return handler(server, stream)
	}
	ctx, done, err := s.config.Users.admit(stream.Context(), headerOf(stream.Context()))
	if err != nil {
		return err
	}
	if err := mayCall(ctx, info.FullMethod); err != nil {
		done()
		return err
	}
	ended := make(chan error, 1)
	go func() {
		defer done()
		ended <- handler(server, &admittedStream{ServerStream: stream, ctx: ctx})
	}()
	account := ctx.Value(userKey{}).(*account)
	select {
	case err := <-ended:
		return removed(ctx, err)
	case <-account.ctx.Done():
		return context.Cause(account.ctx)
	}
}

// admittedStream is a stream with the context of its user.
type admittedStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context carries the user, and ends with the account.
func (s *admittedStream) Context() context.Context { return s.ctx }

// admitHTTP authenticates an HTTP call, and answers it if that fails. A forwarded
// call is authenticated too: anyone can write the header of a forwarded call.
func (b *bridge) admitHTTP(w http.ResponseWriter, r *http.Request) (admitted *http.Request, done func(), ok bool) {
	if open[r.Method+" "+r.URL.Path] {
		return r, func() {}, true
	}
	ctx, done, err := b.server.config.Users.admit(r.Context(), r.Header.Get("Authorization"))
	if err != nil {
		w.Header().Set("WWW-Authenticate", `Bearer realm="leased"`)
		b.fail(w, http.StatusUnauthorized, err)
		return nil, nil, false
	}
	return r.WithContext(ctx), done, true
}
