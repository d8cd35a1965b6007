package scripts

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/redisconn"
)

// A node that refuses because of the format of its state never votes, whatever format it
// names.
func TestFormatRefusalIsNoVote(t *testing.T) {
	t.Parallel()
	for _, words := range [][]string{{"format"}, {"format", ""}, {"format", "1"}, {"format", "01"}, {"format", "0"},
		{"format", "x"}, {"format", "2"}} {
		reply := redisconn.Reply{Words: words}
		vote, err := Vote(reply)
		require.Equal(t, quorum.Vote{State: quorum.Refused}, vote, "%q", words)
		var newer *engine.FormatError
		if words[len(words)-1] == "2" {
			require.ErrorAs(t, err, &newer)
		} else {
			require.ErrorIs(t, err, redisconn.ErrProtocol, "%q", words)
		}
		token, err := Accepted(reply)
		require.Error(t, err, "%q", words)
		require.Equal(t, fencing.None, token)
		_, err = ParseRecord(reply)
		require.Error(t, err, "%q", words)
		_, err = listed(reply)
		require.Error(t, err, "%q", words)
	}
}

// A state has the format of this build only if it is written as the scripts write it.
func TestFormatIsExact(t *testing.T) {
	t.Parallel()
	require.NoError(t, checkFormat("1"))
	for _, text := range []string{"", "0", "01", "+1", " 1", "1x", "4294967297"} {
		require.ErrorIs(t, checkFormat(text), redisconn.ErrProtocol, "%q", text)
	}
	var newer *engine.FormatError
	require.ErrorAs(t, checkFormat("02"), &newer)
}
