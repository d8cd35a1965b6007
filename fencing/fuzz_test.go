package fencing

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// FuzzToken checks that a token has one text form, which all its decoders accept.
func FuzzToken(f *testing.F) {
	for _, s := range []string{"", "0", "1", "01", "-1", "+1", " 1", "1e3", "9007199254740991", "9007199254740992", "99999999999999999999", "1\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		token, err := ParseToken(s)
		var scanned Token
		scanErr := scanned.Scan([]byte(s))
		fromValues, valuesErr := FromValues([]string{s})
		if err != nil {
			require.ErrorIs(t, err, ErrInvalidToken)
			require.Error(t, scanErr)
			require.Error(t, valuesErr)
			return
		}
		require.LessOrEqual(t, token, MaxToken)
		require.Equal(t, s, token.String())
		require.Equal(t, []Token{token, token}, []Token{scanned, fromValues})
		text, err := json.Marshal(token)
		require.NoError(t, err)
		var decoded Token
		require.NoError(t, json.Unmarshal(text, &decoded))
		require.Equal(t, token, decoded)
	})
}

// FuzzResource checks what a valid name excludes, and that a child process gets it
// unchanged.
func FuzzResource(f *testing.F) {
	for _, s := range []string{"", "a", "orders/7", "a b", "a\x00b", "a\xffb", "é", "\u202e", strings.Repeat("x", MaxResourceLen+1), "�"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseResource(s)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalidResource)
			require.Less(t, len(err.Error()), 12*MaxResourceLen, "the error repeats the whole name")
			return
		}
		require.Equal(t, s, string(r))
		require.True(t, utf8.ValidString(s))
		require.NotEmpty(t, s)
		require.LessOrEqual(t, len(s), MaxResourceLen)
		require.False(t, strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f || 0x80 <= c && c < 0xa0 }))
		for _, variable := range Environ(r, 7) {
			name, value, _ := strings.Cut(variable, "=")
			t.Setenv(name, value)
		}
		resource, token, err := FromEnviron()
		require.NoError(t, err)
		require.Equal(t, r, resource)
		require.Equal(t, Token(7), token)
	})
}

// FuzzSignedToken checks that a verifier accepts exactly the text that the signer has
// returned, and only for its resource.
func FuzzSignedToken(f *testing.F) {
	signer, err := NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize)))
	require.NoError(f, err)
	verifier, err := NewVerifier(func() time.Time { return time.Unix(1000, 0) }, signer.PublicKey())
	require.NoError(f, err)
	good, err := signer.Sign("a", 42, time.Unix(2000, 0))
	require.NoError(f, err)
	for _, text := range []string{good, good + " ", good[1:], strings.ToUpper(good), strings.Replace(good, ".42.", ".43.", 1), "", "42", "leased1....", good + "\n"} {
		f.Add(text, "a")
		f.Add(text, "b")
	}
	f.Fuzz(func(t *testing.T, text, resource string) {
		if s, err := parseSigned(text); err == nil {
			require.Equal(t, text, signedHead(s.keyID, s.expiry, s.token)+signatureText.EncodeToString(s.signature), "a second text for one signature")
		}
		token, err := verifier.Verify(Resource(resource), text)
		if text == good && resource == "a" {
			require.NoError(t, err)
			require.Equal(t, Token(42), token)
			return
		}
		require.Error(t, err)
		require.Equal(t, None, token)
	})
}

// FuzzKeys checks that the keys of a file are all read, or none.
func FuzzKeys(f *testing.F) {
	signer, err := NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize)))
	require.NoError(f, err)
	public, err := MarshalPublicKey(signer.PublicKey())
	require.NoError(f, err)
	private, err := MarshalSigner(signer)
	require.NoError(f, err)
	for _, text := range [][]byte{nil, public, private, append(public, public...), append([]byte("comment\n"), public...), public[:40], bytes.ToLower(public)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if keys, err := ParsePublicKeys(text); err == nil {
			require.Len(t, keys, bytes.Count(text, []byte("-----BEGIN ")))
			for _, key := range keys {
				block, err := MarshalPublicKey(key)
				require.NoError(t, err)
				again, err := ParsePublicKeys(block)
				require.NoError(t, err)
				require.True(t, key.Equal(again[0]))
			}
		} else {
			require.ErrorIs(t, err, ErrInvalidKey)
		}
		if s, err := ParseSigner(text); err != nil {
			require.ErrorIs(t, err, ErrInvalidKey)
		} else {
			block, err := MarshalSigner(s)
			require.NoError(t, err)
			again, err := ParseSigner(block)
			require.NoError(t, err)
			require.Equal(t, s.KeyID(), again.KeyID())
		}
	})
}
