package auth

import (
	"context"
	"crypto/subtle"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// User is a caller that the service accepts.
type User struct {
	Name string
	// Hashes are the hashes of the user's secrets, oldest first. A user has more than one
	// while its secret is replaced, and may have none if it has a certificate.
	Hashes []secret.Hash
	// Certificate is the subject common name of the client certificate that identifies
	// the user, or empty.
	Certificate string
	// Member marks the account with which the members of the cluster call each other.
	// It may also make a call on behalf of another user, and has no other rights
	// without rules.
	Member bool
	Rules  Rules
}

// accountKeys returns the keys of the user's accounts.
func (u User) accountKeys() []accountKey {
	keys := []accountKey{{name: u.Name}}
	for _, hash := range u.Hashes {
		keys = append(keys, accountKey{name: u.Name, hash: hash})
	}
	if u.Certificate != "" {
		keys = append(keys, accountKey{name: u.Name, certificate: u.Certificate})
	}
	return keys
}

// Users is the list of callers that the service accepts. A nil *Users accepts
// every call.
type Users struct {
	current atomic.Pointer[map[accountKey]*account]
}

// accountKey is a user and what identifies it: one of its secrets, its certificate, or
// neither, for the calls that members forward for it.
type accountKey struct {
	name        string
	hash        secret.Hash
	certificate string
}

// account is a user that one of its secrets or its certificate identified, until that
// or the user is removed. So the removal of one secret leaves the calls with the others.
type account struct {
	User
	ctx    context.Context // ends when the account is removed
	remove context.CancelCauseFunc
}

// sameRights reports whether a user has the rights of the account.
func (a *account) sameRights(user User) bool {
	return a.Member == user.Member && slices.Equal(a.Rules, user.Rules)
}

// NewUsers returns a list of users.
func NewUsers(list []User) *Users {
	u := &Users{}
	u.current.Store(&map[accountKey]*account{})
	u.Replace(list)
	return u
}

// Replace installs a new list. It ends the streams, watches and waiting calls of
// users that the new list does not contain or whose rules it changes, and those that
// were made with a secret or certificate that it does not contain. Only one goroutine
// may call Replace at a time.
func (u *Users) Replace(list []User) {
	old, next := *u.current.Load(), map[accountKey]*account{}
	for _, user := range list {
		user.Rules = slices.Clone(user.Rules)
		for _, key := range user.accountKeys() {
			a := old[key]
			if a == nil || !a.sameRights(user) {
				a = &account{User: user}
				a.ctx, a.remove = context.WithCancelCause(context.Background())
			}
			next[key] = a
		}
	}
	u.current.Store(&next)
	for key, a := range old {
		if next[key] != a {
			a.remove(fmt.Errorf("%w: user %s was removed or changed, or its secret was removed, while the call was running",
				engine.ErrUncertain, a.Name))
		}
	}
}

// credential is how a caller identifies itself.
type credential struct {
	headers     []string // Authorization
	certificate string   // the subject of the verified client certificate, or empty
	user        string   // the user for whom a member forwards the call, or empty
}

// find returns the account of a caller. A header wins over the certificate of the
// connection: a wrong header is an error.
func (u *Users) find(caller credential) (*account, error) {
	accounts := *u.current.Load()
	a, err := findBySecret(accounts, caller.headers)
	if len(caller.headers) == 0 && caller.certificate != "" {
		a, err = findByCertificate(accounts, caller.certificate)
	}
	switch {
	case caller.user == "":
		return a, err
	case err != nil:
		return nil, fmt.Errorf("%w; a member that this one does not know forwarded the call for user %s; all members "+
			"need the same users", err, caller.user)
	case !a.Member:
		return nil, fmt.Errorf("%w: user %s is not a member account, and only members forward calls for other users; "+
			"remove the header %s",
			engine.ErrForbidden, a.Name, UserHeader)
	}
	a, known := accounts[accountKey{name: caller.user}]
	if !known {
		return nil, fmt.Errorf("%w: a member forwarded a call of user %s, whom this member does not know; all members "+
			"need the same users",
			wire.ErrUnauthenticated, caller.user)
	}
	return a, nil
}

// findBySecret returns the account whose secret is in the Authorization header. It
// compares the hashes of all users in constant time, so that the duration reveals
// nothing.
func findBySecret(accounts map[accountKey]*account, headers []string) (*account, error) {
	header := strings.Join(headers, ", ")
	scheme, text, _ := strings.Cut(header, " ")
	switch {
	case header == "":
		return nil, fmt.Errorf("%w: the call has no secret", wire.ErrUnauthenticated)
	case !strings.EqualFold(scheme, "Bearer"):
		return nil, fmt.Errorf("%w: the Authorization header must use the Bearer scheme", wire.ErrUnauthenticated)
	}
	if err := secret.Check(text); err != nil {
		return nil, fmt.Errorf("%w: %w", wire.ErrUnauthenticated, err)
	}
	hash := secret.HashOf(text)
	var found *account
	for key, a := range accounts {
		if key.hash == (secret.Hash{}) {
			continue // without a secret
		}
		if subtle.ConstantTimeCompare(hash[:], key.hash[:]) == 1 {
			found = a
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: no user has this secret", wire.ErrUnauthenticated)
	}
	return found, nil
}

// findByCertificate returns the account of a client certificate.
func findByCertificate(accounts map[accountKey]*account, subject string) (*account, error) {
	for key, a := range accounts {
		if key.certificate == subject {
			return a, nil
		}
	}
	return nil, fmt.Errorf("%w: the call has no secret, and no user has the certificate %q; add one with `leased user "+
		"add --certificate`",
		wire.ErrUnauthenticated, subject)
}

// contextKey is the key of the account in a context.
type contextKey struct{}

func accountOf(ctx context.Context) *account {
	a, _ := ctx.Value(contextKey{}).(*account)
	return a
}

// HasUser reports whether a call was authenticated. Without users none is.
func HasUser(ctx context.Context) bool { return accountOf(ctx) != nil }

// UserName returns the name of the authenticated user, or "" if the service has no
// users.
func UserName(ctx context.Context) string {
	if a := accountOf(ctx); a != nil {
		return a.Name
	}
	return ""
}

// UserHeader is the header with which a member names the user for whom it forwards a
// call. It is accepted from member accounts only.
const UserHeader = "Leased-User"

// IsForwarded reports whether a member made the call of ctx for a user. Only Authenticate
// knows whether it may.
func (u *Users) IsForwarded(ctx context.Context) bool {
	return u != nil && Header(ctx, UserHeader) != ""
}

// Header returns a header of a call, empty if there is none.
func Header(ctx context.Context, name string) string {
	if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Authenticate returns a context that carries the user of a call and that ends when the
// user or its secret is removed. The caller must call done. A call that another member
// forwarded is authenticated too, since anyone can set the header that marks it.
func (u *Users) Authenticate(ctx context.Context) (authenticated context.Context, done func(), err error) {
	if u == nil {
		return ctx, func() {}, nil
	}
	caller := credential{headers: metadata.ValueFromIncomingContext(ctx, "authorization"), user: Header(ctx, UserHeader)}
	if p, ok := peer.FromContext(ctx); ok {
		if secure, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			caller.certificate = subjectOf(secure.State)
		}
	}
	a, err := u.find(caller)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, contextKey{}, a))
	stop := context.AfterFunc(a.ctx, func() { cancel(context.Cause(a.ctx)) })
	return ctx, func() { stop(); cancel(nil) }, nil
}

// Removed returns a channel that is closed when the user of ctx is removed. Without users
// it is nil.
func Removed(ctx context.Context) <-chan struct{} {
	if a := accountOf(ctx); a != nil {
		return a.ctx.Done()
	}
	return nil
}

// CallError returns the error of a call: err, or if the user was removed while the
// call ran, an error that matches engine.ErrUncertain.
func CallError(ctx context.Context, err error) error {
	a := accountOf(ctx)
	if err == nil || a == nil || a.ctx.Err() == nil {
		return err
	}
	return context.Cause(a.ctx)
}
