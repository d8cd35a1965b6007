package signature_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"math/big"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/fencing/signature"
)

// signedAt is the time of the tests.
var signedAt = time.Unix(1_800_000_000, 0)

func newSigner(t testing.TB, seed byte) *signature.Signer {
	t.Helper()
	signer, err := signature.NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)))
	require.NoError(t, err)
	return signer
}

func newVerifier(t testing.TB, now time.Time, signers ...*signature.Signer) *signature.Verifier {
	t.Helper()
	var keys []ed25519.PublicKey
	for _, s := range signers {
		keys = append(keys, s.PublicKey())
	}
	v, err := signature.NewVerifier(func() time.Time { return now }, keys...)
	require.NoError(t, err)
	return v
}

func TestVerify(t *testing.T) {
	signer, other := newSigner(t, 1), newSigner(t, 2)
	expires := signedAt.Add(time.Hour)
	text, err := signer.Sign("orders/42", 34, expires)
	require.NoError(t, err)
	parts := strings.Split(text, ".")
	replaced := func(i int, part string) string {
		p := slices.Clone(parts)
		p[i] = part
		return strings.Join(p, ".")
	}
	v := newVerifier(t, signedAt, signer)
	for name, test := range map[string]struct {
		verifier *signature.Verifier
		resource fencing.Resource
		text     string
		want     error
	}{
		"valid":                    {v, "orders/42", text, nil},
		"valid to the last second": {newVerifier(t, expires.Add(-time.Nanosecond), signer), "orders/42", text, nil},
		"expired":                  {newVerifier(t, expires, signer), "orders/42", text, signature.ErrExpired},
		"other resource":           {v, "orders/43", text, signature.ErrBadSignature},
		"prefix of the resource":   {v, "orders/4", text, signature.ErrBadSignature},
		"another token":            {v, "orders/42", replaced(3, "35"), signature.ErrBadSignature},
		"a later expiry": {v, "orders/42", replaced(2, strconv.FormatInt(expires.Unix()+1, 10)),
			signature.ErrBadSignature},
		"a key that the gate lacks": {newVerifier(t, signedAt, other), "orders/42", text, signature.ErrUnknownKey},
		"id of another key": {newVerifier(t, signedAt, signer, other), "orders/42", replaced(1, other.KeyID()),
			signature.ErrBadSignature},
		"a number":                   {v, "orders/42", "34", signature.ErrMalformed},
		"the largest number":         {v, "orders/42", fencing.MaxToken.String(), signature.ErrMalformed},
		"empty":                      {v, "orders/42", "", signature.ErrMalformed},
		"another version":            {v, "orders/42", replaced(0, "leased2"), signature.ErrNewer},
		"token 0":                    {v, "orders/42", replaced(3, "0"), signature.ErrMalformed},
		"token with a leading zero":  {v, "orders/42", replaced(3, "034"), signature.ErrMalformed},
		"expiry with a leading zero": {v, "orders/42", replaced(2, "0"+parts[2]), signature.ErrMalformed},
		"negative expiry":            {v, "orders/42", replaced(2, "-1"), signature.ErrMalformed},
		"upper-case key id":          {v, "orders/42", replaced(1, strings.ToUpper(signer.KeyID())), signature.ErrUnknownKey},
		"padded signature":           {v, "orders/42", text + "==", signature.ErrMalformed},
		"line break":                 {v, "orders/42", text[:len(text)-1] + "\n", signature.ErrMalformed},
		"one field more":             {v, "orders/42", text + ".", signature.ErrMalformed},
		"too long":                   {v, "orders/42", strings.Repeat("leased1.", 1000), signature.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			token, err := test.verifier.Verify(test.resource, test.text)
			if test.want == nil {
				require.NoError(t, err)
				require.Equal(t, fencing.Token(34), token)
				return
			}
			require.ErrorIs(t, err, test.want)
			require.ErrorIs(t, err, fencing.ErrInvalidToken)
			require.Equal(t, fencing.None, token)
		})
	}
	require.Equal(t, signature.KeyID(signer.PublicKey()), parts[1])
}

// TestSignatureIsNotMalleable adds the order of the group to S, which the equation
// of the signature cannot tell apart, and sets the unused bits of the last
// character.
func TestSignatureIsNotMalleable(t *testing.T) {
	signer := newSigner(t, 1)
	text, err := signer.Sign("orders/42", 34, signedAt.Add(time.Hour))
	require.NoError(t, err)
	dot := strings.LastIndex(text, ".") + 1
	raw, err := base64.RawURLEncoding.DecodeString(text[dot:])
	require.NoError(t, err)
	order, _ := new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)
	s := slices.Clone(raw[32:])
	slices.Reverse(s)
	sum := new(big.Int).Add(new(big.Int).SetBytes(s), order).FillBytes(make([]byte, 32))
	slices.Reverse(sum)
	v := newVerifier(t, signedAt, signer)
	_, err = v.Verify("orders/42", text[:dot]+base64.RawURLEncoding.EncodeToString(append(raw[:32:32], sum...)))
	require.ErrorIs(t, err, signature.ErrBadSignature)

	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, text[len(text)-1])
	for bits := 1; bits < 16; bits++ {
		_, err := v.Verify("orders/42", text[:len(text)-1]+string(alphabet[last|bits]))
		require.ErrorIs(t, err, signature.ErrMalformed)
	}
}

func TestEveryChangeOfASignedTokenIsRefused(t *testing.T) {
	signer, other := newSigner(t, 1), newSigner(t, 2)
	v := newVerifier(t, signedAt, signer, other)
	rapid.Check(t, func(t *rapid.T) {
		resource := fencing.Resource(rapid.StringMatching(`[ -~]{1,40}`).Draw(t, "resource"))
		token := fencing.Token(rapid.Uint64Range(1, uint64(fencing.MaxToken)).Draw(t, "token"))
		expires := signedAt.Add(time.Duration(rapid.Int64Range(1, 1<<32).Draw(t, "seconds")) * time.Second)
		text, err := signer.Sign(resource, token, expires)
		require.NoError(t, err)
		got, err := v.Verify(resource, text)
		require.NoError(t, err)
		require.Equal(t, token, got)
		require.LessOrEqual(t, len(text), signature.MaxLen)

		i := rapid.IntRange(0, len(text)-1).Draw(t, "byte")
		var changed string
		switch rapid.SampledFrom([]string{"replace", "insert", "delete", "append"}).Draw(t, "change") {
		case "replace":
			changed = text[:i] + string(rapid.Byte().Draw(t, "with")) + text[i+1:]
		case "insert":
			changed = text[:i] + string(rapid.Byte().Draw(t, "with")) + text[i:]
		case "delete":
			changed = text[:i] + text[i+1:]
		case "append":
			changed = text + rapid.StringN(1, 10, -1).Draw(t, "more")
		}
		if changed != text {
			_, err = v.Verify(resource, changed)
			require.ErrorIs(t, err, fencing.ErrInvalidToken, changed)
		}
		renamed := fencing.Resource(rapid.StringMatching(`[ -~]{1,40}`).Draw(t, "renamed"))
		if renamed != resource {
			_, err = v.Verify(renamed, text)
			require.ErrorIs(t, err, signature.ErrBadSignature)
		}
	})
}

// Recheck notices the end of a token, and verifies no signature.
func TestRecheck(t *testing.T) {
	signer, other := newSigner(t, 1), newSigner(t, 2)
	expires := signedAt.Add(time.Hour)
	text, err := signer.Sign("orders", 7, expires)
	require.NoError(t, err)
	now := signedAt
	v, err := signature.NewVerifier(func() time.Time { return now }, signer.PublicKey())
	require.NoError(t, err)
	token, err := v.Recheck("orders", text)
	require.NoError(t, err)
	require.Equal(t, fencing.Token(7), token)
	now = expires
	_, err = v.Recheck("orders", text)
	require.ErrorIs(t, err, signature.ErrExpired)
	now = signedAt
	require.NoError(t, v.Replace(other.PublicKey()))
	_, err = v.Recheck("orders", text)
	require.ErrorIs(t, err, signature.ErrUnknownKey)
}

func TestRotation(t *testing.T) {
	before, after := newSigner(t, 1), newSigner(t, 2)
	v := newVerifier(t, signedAt, before)
	old, err := before.Sign("orders", 7, signedAt.Add(time.Hour))
	require.NoError(t, err)
	young, err := after.Sign("orders", 8, signedAt.Add(time.Hour))
	require.NoError(t, err)

	_, err = v.Verify("orders", young)
	require.ErrorIs(t, err, signature.ErrUnknownKey, "the members must not switch before the gates know the key")
	require.NoError(t, v.Replace(before.PublicKey(), after.PublicKey()))
	for text, want := range map[string]fencing.Token{old: 7, young: 8} {
		token, err := v.Verify("orders", text)
		require.NoError(t, err)
		require.Equal(t, want, token)
	}
	require.NoError(t, v.Replace(after.PublicKey()))
	_, err = v.Verify("orders", old)
	require.ErrorIs(t, err, signature.ErrUnknownKey)
	require.ErrorIs(t, v.Replace(), signature.ErrInvalidKey)
	require.Equal(t, []string{after.KeyID()}, v.KeyIDs(), "a failed replacement changes nothing")
}

// TestReplayAfterTheLeaseWasLost shows that a signature does not replace the fence.
func TestReplayAfterTheLeaseWasLost(t *testing.T) {
	signer := newSigner(t, 1)
	v, fence := newVerifier(t, signedAt, signer), fencing.Fence{}
	first, err := signer.Sign("orders", 7, signedAt.Add(time.Hour))
	require.NoError(t, err)
	require.NoError(t, fence.Enter("orders", 8), "the next holder enters")
	token, err := v.Verify("orders", first)
	require.NoError(t, err, "the signature is still valid")
	require.ErrorIs(t, fence.Admit("orders", token), fencing.ErrStale)
}

func TestSignRefusesWhatNoGrantHas(t *testing.T) {
	signer := newSigner(t, 1)
	_, err := signer.Sign("orders", fencing.None, signedAt)
	require.ErrorIs(t, err, fencing.ErrInvalidToken)
	_, err = signer.Sign("orders", fencing.MaxToken+1, signedAt)
	require.ErrorIs(t, err, fencing.ErrInvalidToken)
	_, err = signer.Sign("", 1, signedAt)
	require.ErrorIs(t, err, fencing.ErrInvalidResource)
	_, err = signer.Sign("orders", 1, time.Unix(-1, 0))
	require.Error(t, err)
}

func TestVerifierFromValues(t *testing.T) {
	signer := newSigner(t, 1)
	v := newVerifier(t, signedAt, signer)
	text, err := signer.Sign("orders", 7, signedAt.Add(time.Hour))
	require.NoError(t, err)
	token, err := v.FromValues("orders", nil)
	require.NoError(t, err)
	require.Equal(t, fencing.None, token)
	token, err = v.FromValues("orders", []string{text})
	require.NoError(t, err)
	require.Equal(t, fencing.Token(7), token)
	_, err = v.FromValues("orders", []string{text, text})
	require.ErrorIs(t, err, fencing.ErrInvalidToken)
	_, err = v.FromValues("orders", []string{"7"})
	require.ErrorIs(t, err, signature.ErrMalformed)
}

// FuzzVerify checks that a text that the verifier accepts is one that the signer
// makes.
func FuzzVerify(f *testing.F) {
	signer := newSigner(f, 1)
	v := newVerifier(f, signedAt, signer)
	text, err := signer.Sign("orders", 7, signedAt.Add(time.Hour))
	require.NoError(f, err)
	f.Add("orders", text)
	f.Add("orders", "7")
	f.Add("orders", "leased1....")
	f.Add("", strings.Replace(text, ".7.", ".9007199254740992.", 1))
	f.Fuzz(func(t *testing.T, resource, text string) {
		token, err := v.Verify(fencing.Resource(resource), text)
		if err != nil {
			require.ErrorIs(t, err, fencing.ErrInvalidToken)
			return
		}
		expiry, err := strconv.ParseInt(strings.Split(text, ".")[2], 10, 64)
		require.NoError(t, err)
		again, err := signer.Sign(fencing.Resource(resource), token, time.Unix(expiry, 0))
		require.NoError(t, err)
		require.Equal(t, again, text)
	})
}

// TestGoldenSignedToken checks that a signed token of version 1 is verified, and that the
// same key makes the same text.
func TestGoldenSignedToken(t *testing.T) {
	text, err := os.ReadFile("testdata/golden-v1/signed-token.txt")
	require.NoError(t, err)
	signer := newSigner(t, 1)
	made, err := signer.Sign("orders/42", 34, signedAt.Add(time.Hour))
	require.NoError(t, err)
	require.Equal(t, string(text), made+"\n", "signed tokens are frozen, see docs/adr/0030-frozen-formats.md")
	token, err := newVerifier(t, signedAt, signer).Verify("orders/42", strings.TrimSpace(string(text)))
	require.NoError(t, err)
	require.Equal(t, fencing.Token(34), token)

	_, err = newVerifier(t, signedAt, signer).Verify("orders/42", "leased2.anything")
	require.ErrorIs(t, err, signature.ErrNewer)
	require.ErrorContains(t, err, "upgrade the gate to a build that reads version 2")
}
