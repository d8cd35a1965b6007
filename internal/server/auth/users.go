package auth

import (
	"context"
	"crypto/subtle"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/leased-project/leased/internal/server/audit"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/secret"
	"github.com/leased-project/leased/lease/remote/wire"
)

// User is a caller that the service accepts.
type User struct {
	Name string
	// Hash is the hash of the secret. It is zero for a user with a certificate.
	Hash secret.Hash
	// Certificate is the subject common name of the client certificate that identifies
	// the user, or empty. Such a user has no secret.
	Certificate string
	// Member marks the account with which the members of the cluster call each other.
	// It may also make a call on behalf of another user, and has no other rights
	// without rules.
	Member bool
	Rules  Rules
}

// equal reports whether two users are the same in all fields.
func (u User) equal(other User) bool {
	return u.Name == other.Name && u.Hash == other.Hash && u.Certificate == other.Certificate && u.Member == other.Member &&
		slices.Equal(u.Rules, other.Rules)
}

// Users is the list of callers that the service accepts. A nil *Users accepts
// every call.
type Users struct {
	current atomic.Pointer[[]*account]
}

// account is a user until it is removed.
type account struct {
	User
	ctx    context.Context // ends when the user is removed
	remove context.CancelCauseFunc
}

// NewUsers returns a list of users.
func NewUsers(list []User) *Users {
	u := &Users{}
	u.current.Store(&[]*account{})
	u.Replace(list)
	return u
}

// Replace installs a new list. It ends the streams, watches and waiting calls of
// users that the new list does not contain or that it changes, such as by removing a
// rule. Only one goroutine may call Replace at a time.
func (u *Users) Replace(list []User) {
	old := *u.current.Load()
	left := make(map[string]*account, len(old))
	for _, a := range old {
		left[a.Name] = a
	}
	next := make([]*account, 0, len(list))
	for _, user := range list {
		a := left[user.Name]
		if a == nil || !a.equal(user) {
			user.Rules = slices.Clone(user.Rules)
			a = &account{User: user}
			a.ctx, a.remove = context.WithCancelCause(context.Background())
		} else {
			delete(left, user.Name)
		}
		next = append(next, a)
	}
	u.current.Store(&next)
	for _, a := range left {
		a.remove(fmt.Errorf("%w: user %s was removed or changed while the call was running", engine.ErrUncertain, a.Name))
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
	if err != nil || caller.user == "" {
		return a, err
	}
	if !a.Member {
		return nil, fmt.Errorf("%w: user %s is not a member account, and only members forward calls for other users; remove the header %s",
			engine.ErrForbidden, a.Name, UserHeader)
	}
	i := slices.IndexFunc(accounts, func(a *account) bool { return a.Name == caller.user })
	if i < 0 {
		return nil, fmt.Errorf("%w: a member forwarded a call of user %s, whom this member does not know; all members need the same users",
			wire.ErrUnauthenticated, caller.user)
	}
	return accounts[i], nil
}

// findBySecret returns the account whose secret is in the Authorization header. It
// compares the hashes of all users in constant time, so that the duration reveals
// nothing.
func findBySecret(accounts []*account, headers []string) (*account, error) {
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
	for _, a := range accounts {
		if a.Certificate != "" {
			continue // without a secret
		}
		if subtle.ConstantTimeCompare(hash[:], a.Hash[:]) == 1 {
			found = a
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: no user has this secret", wire.ErrUnauthenticated)
	}
	return found, nil
}

// findByCertificate returns the account of a client certificate.
func findByCertificate(accounts []*account, subject string) (*account, error) {
	i := slices.IndexFunc(accounts, func(a *account) bool { return a.Certificate == subject })
	if i < 0 {
		return nil, fmt.Errorf("%w: the call has no secret, and no user has the certificate %q; add one with `leased user add --certificate`",
			wire.ErrUnauthenticated, subject)
	}
	return accounts[i], nil
}

// accountKey is the key of the account in a context.
type accountKey struct{}

func accountOf(ctx context.Context) *account {
	a, _ := ctx.Value(accountKey{}).(*account)
	return a
}

// UserName returns the name of the authenticated user, or "" if the service has no
// users.
func UserName(ctx context.Context) string {
	if a := accountOf(ctx); a != nil {
		return a.Name
	}
	return ""
}

// authenticate returns a context that carries the user and that ends when the
// user is removed. The caller must call done.
func (u *Users) authenticate(ctx context.Context, caller credential) (authenticated context.Context, done func(), err error) {
	if u == nil {
		return ctx, func() {}, nil
	}
	a, err := u.find(caller)
	if err != nil {
		return nil, nil, err
	}
	audit.Identify(ctx, a.Name)
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, accountKey{}, a))
	stop := context.AfterFunc(a.ctx, func() { cancel(context.Cause(a.ctx)) })
	return ctx, func() { stop(); cancel(nil) }, nil
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
