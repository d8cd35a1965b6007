package servicetest

import (
	"bytes"
	"crypto/ed25519"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/fencing/signature"
	"github.com/leased-project/leased/storagegate"
)

// SignedResource is the resource of RequireSigned.
const SignedResource fencing.Resource = "orders"

// signedAt is the time of NewVerifier.
var signedAt = time.Unix(1_800_000_000, 0)

// signer returns a key of the lock service, or of someone else.
func signer(t testing.TB, seed byte) *signature.Signer {
	t.Helper()
	s, err := signature.NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)))
	require.NoError(t, err)
	return s
}

// NewVerifier returns the verifier of a gate for RequireSigned.
func NewVerifier(t testing.TB) *signature.Verifier {
	t.Helper()
	v, err := signature.NewVerifier(func() time.Time { return signedAt }, signer(t, 1).PublicKey())
	require.NoError(t, err)
	return v
}

// RequireSigned checks a gate with NewVerifier. write sends a write of
// SignedResource with text as its token, or without one if text is empty.
func RequireSigned(t *testing.T, store *Store, counts func() storagegate.Counts, write func(text, value string) error) {
	t.Helper()
	sign := func(seed byte, resource fencing.Resource, token fencing.Token, expires time.Time) string {
		text, err := signer(t, seed).Sign(resource, token, expires)
		require.NoError(t, err)
		return text
	}
	later := signedAt.Add(time.Hour)
	valid := sign(1, SignedResource, 7, later)
	refused := map[string]string{
		"no token":             "",
		"a number":             "7",
		"the largest token":    fencing.MaxToken.String(),
		"a changed token":      valid[:len(valid)-1] + map[bool]string{true: "w", false: "g"}[valid[len(valid)-1] != 'w'],
		"for another resource": sign(1, "invoices", 7, later),
		"expired":              sign(1, SignedResource, 7, signedAt),
		"of another key":       sign(2, SignedResource, 7, later),
	}
	for name, text := range refused {
		require.Error(t, write(text, "bad"), name)
		require.Empty(t, store.Get(SignedResource), name)
	}
	require.Equal(t, storagegate.Counts{Unsigned: uint64(len(refused))}, counts())

	require.NoError(t, write(valid, "one"))
	require.NoError(t, write(sign(1, SignedResource, 7, later.Add(time.Hour)), "two"), "signed again for the same lease")
	require.NoError(t, write(sign(1, SignedResource, 8, later), "three"))
	require.ErrorIs(t, write(valid, "four"), fencing.ErrStale, "the lease was lost; its signature is still valid")
	require.Error(t, write("8", "five"))
	require.Equal(t, "three", store.Get(SignedResource))
}
