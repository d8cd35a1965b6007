package engine_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

// FuzzIdentifiers checks that session ids and modes have one text form, apart from the
// case of the hexadecimal digits.
func FuzzIdentifiers(f *testing.F) {
	for _, s := range []string{"", "efficiency", "correctness", "any", strings.Repeat("0", 32), strings.Repeat("F", 32),
		strings.Repeat("0", 31), "0x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := engine.ParseSessionID(s); err == nil {
			require.Equal(t, strings.ToLower(s), id.String())
		} else {
			require.ErrorIs(t, err, engine.ErrInvalid)
			require.Less(t, len(err.Error()), 300, "the error repeats the whole text")
		}
		if mode, err := engine.ParseMode(s); err == nil {
			require.Equal(t, s, mode.String())
		} else {
			require.ErrorIs(t, err, engine.ErrInvalid)
		}
	})
}
