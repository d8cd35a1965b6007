package scripts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/redisconn"
)

// FuzzAnswers checks that the answers of a Redis node, which may be hostile, are
// refused unless they have a valid token, time and version.
func FuzzAnswers(f *testing.F) {
	f.Add("name\n1000\n7\n7\n0\n{}\n\n", int64(7))
	f.Add("held\n99999999999999999\nx.1", int64(0))
	f.Add("a\n-1\n9007199254740992\n0\n0\n\n\n\nw1\nw2", int64(1)<<53)
	f.Add("empty", int64(-1))
	f.Add("", int64(1)<<62)
	f.Fuzz(func(t *testing.T, text string, number int64) {
		words := strings.Split(text, "\n")
		for _, reply := range []redisconn.Reply{{Words: words}, {Int: number}, {Words: []string{}}} {
			if record, err := ParseRecord(reply); err == nil {
				require.True(t, max(record.Token, record.Renewed, record.Past) <= fencing.MaxToken)
				require.GreaterOrEqual(t, record.Left, -longestTime)
			}
			token, err := Accepted(reply)
			require.Equal(t, err == nil, token.Valid(), "%v", token)
			vote, err := Vote(reply)
			require.Equal(t, vote.State == quorum.Accepted, err == nil)
		}
		for len(words) < stateFields {
			words = append(words, "")
		}
		if state, err := parseState(words); err == nil && state != nil {
			require.Less(t, state.Version, uint64(1)<<53)
			require.True(t, state.Max <= fencing.MaxToken && state.Floor <= fencing.MaxToken &&
				state.Ceiling <= fencing.MaxToken)
		}
		if names, err := listed(redisconn.Reply{Words: words[:len(words)%7]}); err == nil {
			require.Less(t, len(names), len(words))
		}
	})
}
