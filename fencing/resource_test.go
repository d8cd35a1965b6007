package fencing_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
)

func TestParseResource(t *testing.T) {
	tests := []struct {
		name string
		in   string
		says string // part of the error; empty if the name is valid
	}{
		{"plain", "orders/42", ""},
		{"one byte", "a", ""},
		{"space inside", "night job", ""},
		{"other scripts", "Aufträge/京都/🔒", ""},
		{"the replacement character itself", "a\uFFFDb", ""},
		{"longest", strings.Repeat("x", fencing.MaxResourceLen), ""},
		{"empty", "", "empty"},
		{"too long", strings.Repeat("x", fencing.MaxResourceLen+1), "513 bytes"},
		{"too long in bytes, not in characters", strings.Repeat("é", 257), "514 bytes"},
		{"newline", "a\nb", "U+000A"},
		{"nul", "a\x00", "U+0000"},
		{"delete", "a\x7f", "U+007F"},
		{"no-break space", "a\u00a0b", "U+00A0"},
		{"invisible direction mark", "a\u202eb", "U+202E"},
		{"broken UTF-8", "a\xffb", "not UTF-8 at byte 1"},
		{"cut UTF-8", "\xe4\xba", "not UTF-8 at byte 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := fencing.ParseResource(tt.in)
			if tt.says == "" {
				require.NoError(t, err)
				require.Equal(t, fencing.Resource(tt.in), r)
				return
			}
			require.ErrorIs(t, err, fencing.ErrInvalidResource)
			require.ErrorContains(t, err, tt.says)
			require.Empty(t, r)
		})
	}
}

// The package has its own table of unprintable characters. Compared with package
// unicode: every printable character is allowed, and every allowed character is
// printable or unassigned.
func TestNamesArePrintable(t *testing.T) {
	for c := rune(0); c <= unicode.MaxRune; c++ {
		if !utf8.ValidRune(c) {
			continue
		}
		allowed := fencing.Resource(string(c)).Validate() == nil
		assigned := !unicode.Is(unicode.Cn, c)
		if unicode.IsPrint(c) != allowed && (assigned || !allowed) {
			t.Fatalf("%U: printable %v, allowed %v", c, unicode.IsPrint(c), allowed)
		}
	}
}

func TestSlotNamesDiffer(t *testing.T) {
	r := fencing.Resource("pool")
	require.Equal(t, fencing.Resource("pool#1"), r.Slot(1))
	require.NotEqual(t, r.Slot(1), r.Slot(11))
}
