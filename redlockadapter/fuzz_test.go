package redlockadapter

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/lease/engine"
)

// FuzzAttemptName checks that the name of an attempt says who made it, and that a name
// of another process, which may be hostile, is read without a panic and for one user at
// most.
func FuzzAttemptName(f *testing.F) {
	f.Add("alice", []byte("0123456789abcdef"), uint64(1), "AAAAAAAAAAAAAAAAAAAAAA.1.aRkUAHByb2Nl.bob")
	f.Add("a.b@c", []byte(""), uint64(1)<<63, "..")
	f.Add("", []byte("x"), uint64(0), ".....x")
	f.Add("bob", []byte("x"), uint64(1), "a.1.AAAAAAAAAAAA.bob")
	f.Add("bob", []byte("x"), uint64(1), "a.1.____________.bob")
	f.Fuzz(func(t *testing.T, user string, raw []byte, number uint64, foreign string) {
		var session engine.SessionID
		copy(session[:], raw)
		at := earliestTime.Add(time.Duration(number % uint64(latestTime.Sub(earliestTime)))).Truncate(time.Second)
		name := attemptName(session, engine.Nonce(number), at, user)
		gotSession, gotNonce := AttemptOf(name)
		require.Equal(t, session, gotSession)
		require.Equal(t, engine.Nonce(number), gotNonce)
		require.Equal(t, user, UserOf(name))
		require.True(t, at.Equal(sinceOf(name)))
		if since := sinceOf(foreign); !since.IsZero() {
			require.True(t, !since.Before(earliestTime) && !since.After(latestTime))
		}
		_, _ = AttemptOf(foreign)
		if other := UserOf(foreign); other != "" {
			require.True(t, strings.HasSuffix(foreign, "."+other))
		}
	})
}

// FuzzDetails checks that the details of a lease are read as they were written, and
// that those of another process are read without a panic.
func FuzzDetails(f *testing.F) {
	f.Add(`{"holder":"h","ttl":1000,"set":["a","b"],"metadata":{"k":"v"}}`)
	f.Add(`{"ttl":9223372036854775807}`)
	f.Add(`{"ttl":-1,"set":[""]}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, text string) {
		held := leaseOf("x", text, "a")
		require.NotEmpty(t, held.Resources)
		require.True(t, held.TTL >= 0 && held.TTL <= engine.MaxTTL, "%v", held.TTL)
		again := leaseOf("x", detailsOf(&held), held.Resources[0])
		require.Equal(t, detailsOf(&held), detailsOf(&again))
	})
}
