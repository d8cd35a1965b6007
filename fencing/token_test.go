package fencing_test

import (
	"database/sql"
	"database/sql/driver"
	"encoding"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leased-project/leased/fencing"
)

var (
	_ encoding.TextMarshaler   = fencing.None
	_ encoding.TextUnmarshaler = (*fencing.Token)(nil)
	_ json.Marshaler           = fencing.None
	_ json.Unmarshaler         = (*fencing.Token)(nil)
	_ driver.Valuer            = fencing.None
	_ sql.Scanner              = (*fencing.Token)(nil)
)

func TestParseToken(t *testing.T) {
	tests := []struct {
		in   string
		want fencing.Token
		ok   bool
	}{
		{"0", fencing.None, true},
		{"1", 1, true},
		{"9007199254740991", fencing.MaxToken, true},
		{"9007199254740992", 0, false},
		{"18446744073709551616", 0, false},
		{"", 0, false},
		{"-1", 0, false},
		{"+1", 0, false},
		{" 1", 0, false},
		{"01", 0, false},
		{"1.0", 0, false},
		{"1e3", 0, false},
		{"0x1", 0, false},
		{"1_000", 0, false},
		{"١", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := fencing.ParseToken(tt.in)
			if !tt.ok {
				require.ErrorIs(t, err, fencing.ErrInvalidToken)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestTokenJSON(t *testing.T) {
	tests := []struct {
		in   string
		want fencing.Token
		ok   bool
	}{
		{`34`, 34, true},
		{`"34"`, 34, true},
		{`0`, fencing.None, true},
		{`null`, 7, true}, // unchanged
		{`9007199254740991`, fencing.MaxToken, true},
		{`9007199254740992`, 0, false},
		{`34.0`, 0, false},
		{`3e1`, 0, false},
		{`-1`, 0, false},
		{`""`, 0, false},
		{`"`, 0, false},
		{`true`, 0, false},
		{`{}`, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got := struct{ Token fencing.Token }{7}
			err := json.Unmarshal([]byte(`{"Token":`+tt.in+`}`), &got)
			if !tt.ok {
				require.Error(t, err)
				require.Equal(t, fencing.Token(7), got.Token, "an invalid value must not change the token")
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got.Token)
		})
	}
	out, err := json.Marshal(map[fencing.Token]fencing.Token{5: fencing.MaxToken})
	require.NoError(t, err)
	require.Equal(t, `{"5":9007199254740991}`, string(out), "a value is a number, a map key is text")
}

func TestTokenScan(t *testing.T) {
	tests := []struct {
		name string
		src  any
		want fencing.Token
		ok   bool
	}{
		{"int64", int64(9), 9, true},
		{"null", nil, fencing.None, true},
		{"text", "9", 9, true},
		{"bytes", []byte("9"), 9, true},
		{"negative", int64(-1), 0, false},
		{"too large", int64(1) << 53, 0, false},
		{"float", float64(9), 0, false},
		{"bad text", "nine", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := fencing.Token(7)
			err := got.Scan(tt.src)
			if !tt.ok {
				require.ErrorIs(t, err, fencing.ErrInvalidToken)
				require.Equal(t, fencing.Token(7), got)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestTokenOutOfRangeIsNotEncoded(t *testing.T) {
	bad := fencing.MaxToken + 1
	require.False(t, bad.Valid())
	_, err := bad.Value()
	require.ErrorIs(t, err, fencing.ErrInvalidToken)
	_, err = json.Marshal(bad)
	require.ErrorIs(t, err, fencing.ErrInvalidToken)
	_, err = bad.MarshalText()
	require.ErrorIs(t, err, fencing.ErrInvalidToken)
}

func TestTokenEncodingsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := fencing.Token(rapid.Uint64Range(0, uint64(fencing.MaxToken)).Draw(t, "token"))
		var fromText, fromJSON, fromSQL fencing.Token

		text, err := want.MarshalText()
		require.NoError(t, err)
		require.NoError(t, fromText.UnmarshalText(text))

		data, err := json.Marshal(want)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &fromJSON))

		value, err := want.Value()
		require.NoError(t, err)
		require.NoError(t, fromSQL.Scan(value))

		require.Equal(t, []fencing.Token{want, want, want}, []fencing.Token{fromText, fromJSON, fromSQL})
	})
}

func TestNewer(t *testing.T) {
	require.True(t, fencing.Token(2).Newer(1))
	require.False(t, fencing.Token(2).Newer(2))
	require.False(t, fencing.Token(1).Newer(2))
	require.True(t, fencing.Token(1).Newer(fencing.None))
}
