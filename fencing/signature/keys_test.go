package signature_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing/signature"
)

func TestKeysAsText(t *testing.T) {
	one, two := newSigner(t, 1), newSigner(t, 2)
	private, err := signature.MarshalSigner(one)
	require.NoError(t, err)
	parsed, err := signature.ParseSigner(private)
	require.NoError(t, err)
	require.Equal(t, one.KeyID(), parsed.KeyID())

	first, err := signature.MarshalPublicKey(one.PublicKey())
	require.NoError(t, err)
	second, err := signature.MarshalPublicKey(two.PublicKey())
	require.NoError(t, err)
	list := append(append([]byte("old key, remove after the rotation\n"), first...), second...)
	keys, err := signature.ParsePublicKeys(list)
	require.NoError(t, err)
	require.Len(t, keys, 2)
	require.Equal(t, one.KeyID(), signature.KeyID(keys[0]))
	require.Equal(t, two.KeyID(), signature.KeyID(keys[1]))

	for name, text := range map[string][]byte{
		"nothing":                  nil,
		"a private key":            private,
		"a second key that is cut": append(append([]byte{}, first...), second[:len(second)-30]...),
		"another kind of key":      otherKind(t),
	} {
		_, err := signature.ParsePublicKeys(text)
		require.ErrorIs(t, err, signature.ErrInvalidKey, name)
	}
	for name, text := range map[string][]byte{"nothing": nil, "a public key": first,
		"two keys": append(append([]byte{}, private...), private...)} {
		_, err := signature.ParseSigner(text)
		require.ErrorIs(t, err, signature.ErrInvalidKey, name)
	}
}

func otherKind(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func TestKeysOfWrongLength(t *testing.T) {
	_, err := signature.NewSigner(make([]byte, 63))
	require.ErrorIs(t, err, signature.ErrInvalidKey)
	_, err = signature.NewVerifier(time.Now, make([]byte, 31))
	require.ErrorIs(t, err, signature.ErrInvalidKey)
	_, err = signature.NewVerifier(time.Now)
	require.ErrorIs(t, err, signature.ErrInvalidKey)
	_, err = signature.NewVerifier(nil, newSigner(t, 1).PublicKey())
	require.ErrorContains(t, err, "a clock is required")
}

// FuzzParseKeys checks that the parsers refuse with ErrInvalidKey, and that a key
// that they accept can be written again.
func FuzzParseKeys(f *testing.F) {
	private, err := signature.MarshalSigner(newSigner(f, 1))
	require.NoError(f, err)
	public, err := signature.MarshalPublicKey(newSigner(f, 1).PublicKey())
	require.NoError(f, err)
	f.Add(private)
	f.Add(public)
	f.Fuzz(func(t *testing.T, text []byte) {
		if keys, err := signature.ParsePublicKeys(text); err != nil {
			require.ErrorIs(t, err, signature.ErrInvalidKey)
		} else {
			for _, key := range keys {
				_, err := signature.MarshalPublicKey(key)
				require.NoError(t, err)
			}
		}
		if _, err := signature.ParseSigner(text); err != nil {
			require.ErrorIs(t, err, signature.ErrInvalidKey)
		}
	})
}

// runLeast runs f as a benchmark and reports its least time, which depends less on the
// load of the machine than the mean.
func runLeast(b *testing.B, f func() error) {
	b.Helper()
	least := time.Hour
	for b.Loop() {
		start := time.Now()
		err := f()
		least = min(least, time.Since(start))
		require.NoError(b, err)
	}
	b.ReportMetric(float64(least.Nanoseconds()), "least-ns/op")
}

func BenchmarkSign(b *testing.B) {
	signer := newSigner(b, 1)
	runLeast(b, func() error {
		_, err := signer.Sign("orders/42", 34, signedAt)
		return err
	})
}

func BenchmarkVerify(b *testing.B) {
	signer := newSigner(b, 1)
	text, err := signer.Sign("orders/42", 34, signedAt.Add(time.Hour))
	require.NoError(b, err)
	v := newVerifier(b, signedAt, signer)
	runLeast(b, func() error {
		_, err := v.Verify("orders/42", text)
		return err
	})
}
