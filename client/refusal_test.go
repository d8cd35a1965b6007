package client_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
)

// refusedTokens returns the tokens of the refused writes in the history of a lock.
func (s *service) refusedTokens(lock string) (tokens []fencing.Token) {
	s.Helper()
	response, err := http.Post("http://"+s.members[0].server.Address()+"/v1/history", "application/json",
		strings.NewReader(`{"resource":"`+lock+`"}`))
	require.NoError(s, err)
	defer response.Body.Close()
	require.Equal(s, http.StatusOK, response.StatusCode)
	var history struct {
		Events []struct {
			Type, Gate string
			Party      struct{ Token fencing.Token }
		}
	}
	require.NoError(s, json.NewDecoder(response.Body).Decode(&history))
	for _, e := range history.Events {
		if e.Type == "refused" {
			tokens = append(tokens, e.Party.Token)
		}
	}
	return tokens
}

// TestReportRefusal checks that a client reports refused writes of both modes to the
// leader, also if it knows only another member and takes locks from Redis directly.
func TestReportRefusal(t *testing.T) {
	t.Parallel()
	s := startService(t, 2, func(c *server.Config) {
		c.Raft.HeartbeatTimeout = 6 * time.Second // the next leader would not know the refusals
	})
	c, err := client.Dial(testserver.Context(t), []string{s.members[1].server.Address()}, client.WithLogger(quiet))
	require.NoError(t, err)
	defer c.Close(testserver.Context(t))
	for _, lock := range []string{"fast/a", "slow/a"} {
		l, err := c.Acquire(testserver.Context(t), fencing.Resource(lock))
		require.NoError(t, err)
		require.NoError(t, l.Release(testserver.Context(t)))
		require.NoError(t, c.ReportRefusal(testserver.Context(t), lease.Refusal{Resource: fencing.Resource(lock),
			Token: l.Token(), Mark: l.Token() + 1, Gate: "sql"}))
		require.Equal(t, []fencing.Token{l.Token()}, s.refusedTokens(lock))
	}
	err = c.ReportRefusal(testserver.Context(t), lease.Refusal{Resource: "slow/a", Reason: "bored", Gate: "sql"})
	require.ErrorIs(t, err, lease.ErrInvalid)
}
