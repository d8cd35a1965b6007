package fencing

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// FuzzToken checks that a token has one text form, which all its decoders accept.
func FuzzToken(f *testing.F) {
	for _, s := range []string{"", "0", "1", "01", "-1", "+1", " 1", "1e3", "9007199254740991", "9007199254740992",
		"99999999999999999999", "1\n"} {
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
	for _, s := range []string{"", "a", "orders/7", "a b", "a\x00b", "a\xffb", "é", "\u202e",
		strings.Repeat("x", MaxResourceLen+1), "�"} {
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
