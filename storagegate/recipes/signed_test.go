package recipes_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/fencing/signature"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/boltgate"
	"github.com/leased-project/leased/storagegate/httpgate"
)

// signedLease is the part of lease.Lease that the recipe uses.
type signedLease interface {
	SignedToken(ctx context.Context) (string, error)
}

func sendSigned(ctx context.Context, lease signedLease, request *http.Request) error {
	signed, err := lease.SignedToken(ctx) // cached; asks the service twice an hour
	if err != nil {
		return err
	}
	httpgate.SetSignedToken(request, signed)
	return nil
}

func verifyFirst(ctx context.Context, verifier *signature.Verifier, gate storagegate.Gate[*bolt.Tx], signed string,
	write func(*bolt.Tx) error) error {
	token, err := verifier.Verify("account/7", signed)
	if err != nil {
		return err // matches fencing.ErrInvalidToken
	}
	return gate.Do(ctx, "account/7", token, write)
}

// heldLease is a lease with a fixed token.
type heldLease struct {
	signer *signature.Signer
	token  fencing.Token
}

func (l heldLease) SignedToken(context.Context) (string, error) {
	return l.signer.Sign("account/7", l.token, time.Now().Add(time.Hour))
}

func TestSignedRecipes(t *testing.T) {
	signer, err := signature.NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize)))
	require.NoError(t, err)
	verifier, err := signature.NewVerifier(time.Now, signer.PublicKey())
	require.NoError(t, err)
	db, err := bolt.Open(t.TempDir()+"/signed.db", 0o600, nil)
	require.NoError(t, err)
	defer db.Close()
	gate := boltgate.New(db, fencing.Rule{})
	requireFences(t, func(token fencing.Token) error {
		request := httptest.NewRequest(http.MethodPut, "/", nil)
		require.NoError(t, sendSigned(t.Context(), heldLease{signer, token}, request))
		return verifyFirst(t.Context(), verifier, gate, request.Header.Get(fencing.Header), func(*bolt.Tx) error {
			return nil
		})
	})
	err = verifyFirst(t.Context(), verifier, gate, "9007199254740990", func(*bolt.Tx) error { return nil })
	require.ErrorIs(t, err, fencing.ErrInvalidToken)
}
