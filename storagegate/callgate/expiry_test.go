package callgate_test

import (
	"bytes"
	"crypto/ed25519"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/fencing/signature"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/callgate"
)

func namesOrders() (fencing.Resource, error) { return orders, nil }

// signedGuard returns a guard that verifies, and a function that signs a token for orders.
func signedGuard(t *testing.T) (*callgate.Guard, func(token fencing.Token, ttl time.Duration) []string) {
	t.Helper()
	signer, err := signature.NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize)))
	require.NoError(t, err)
	verifier, err := signature.NewVerifier(time.Now, signer.PublicKey())
	require.NoError(t, err)
	return callgate.New(callgate.Memory(fencing.Rule{}), callgate.WithVerifier(verifier)),
		func(token fencing.Token, ttl time.Duration) []string {
			text, err := signer.Sign(orders, token, time.Now().Add(ttl))
			require.NoError(t, err)
			return []string{text}
		}
}

// The signature of a call that waits for its resource expires.
func TestSignatureExpiresDuringTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard, sign := signedGuard(t)
		end, err := guard.BeginNamed(t.Context(), sign(7, time.Hour), namesOrders)
		require.NoError(t, err)
		waited := make(chan error, 1)
		go func() {
			_, err := guard.BeginNamed(t.Context(), sign(8, time.Minute), namesOrders)
			waited <- err
		}()
		time.Sleep(time.Minute)
		end()
		require.ErrorIs(t, <-waited, signature.ErrExpired)
		require.Equal(t, storagegate.Counts{Admitted: 1, Unsigned: 1}, guard.Counts())
		end, err = guard.BeginNamed(t.Context(), sign(7, time.Hour), namesOrders)
		require.NoError(t, err, "the resource is free, and its mark was not raised")
		end()
	})
}

// The signature of a stream expires between two messages.
func TestSignatureExpiresDuringAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard, sign := signedGuard(t)
		stream, err := guard.NewStream(sign(7, time.Minute), func(err error) error { return err })
		require.NoError(t, err)
		receive := func() error { return stream.Receive(t.Context(), nothing, namesOrders) }
		require.NoError(t, receive())
		require.NoError(t, receive())
		time.Sleep(time.Minute)
		require.ErrorIs(t, receive(), signature.ErrExpired)
	})
}
