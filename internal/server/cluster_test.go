package server_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
)

// TestFollowers: a follower names the leader to gRPC clients, and forwards HTTP.
func TestFollowers(t *testing.T) {
	c := startCluster(t, 3)
	follower := c.follower()
	leader := c.leader()

	_, err := pb.NewLeaseServiceClient(dial(t, follower.spec.API)).Acquire(patient(t), &pb.AcquireRequest{Resource: "a"})
	err = wire.FromStatus(err)
	require.ErrorIs(t, err, engine.ErrUnavailable, "nothing has happened")
	var not *wire.NotLeaderError
	require.ErrorAs(t, err, &not)
	require.Equal(t, leader.spec.API, not.Leader)

	code, answer := post(t, follower.spec.API, "/v1/acquire", `{"resource":"a","ttl":"1m","holder":"through a follower"}`)
	require.Equal(t, http.StatusOK, code, answer)
	code, answer = post(t, leader.spec.API, "/v1/acquire", `{"resource":"a"}`)
	require.Equal(t, http.StatusConflict, code)
	require.Equal(t, "held", answer["code"])

	request, err := http.NewRequest(http.MethodPost, "http://"+follower.spec.API+"/v1/watch", strings.NewReader(`{"resource":"a"}`))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request.WithContext(patient(t)))
	require.NoError(t, err)
	defer response.Body.Close()
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	require.NoError(t, err, "events are passed on one by one")
	require.Contains(t, line, "through a follower")

	request, err = http.NewRequest(http.MethodPost, "http://"+follower.spec.API+"/v1/inspect", strings.NewReader(`{"resource":"a"}`))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Leased-Forwarded", "n9")
	response, err = http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode, "a request is forwarded once")
}

// TestMembership: transfer, remove, and a member that comes back as a new one.
func TestMembership(t *testing.T) {
	c := startCluster(t, 3)
	old := c.leader()
	to := c.follower()
	code, answer := post(t, to.spec.API, "/v1/transfer", `{"to":"`+to.spec.ID+`"}`)
	require.Equal(t, http.StatusOK, code, answer)
	eventually(t, "the other leads", func() bool { return c.leader() == to })

	old.kill()
	code, answer = post(t, to.spec.API, "/v1/remove", `{"id":"`+old.spec.ID+`"}`)
	require.Equal(t, http.StatusOK, code, answer)
	members, _ := to.status()["members"].([]any)
	require.Len(t, members, 2)

	fresh := &member{t: t, spec: memberSpec{ID: "n4", Dir: t.TempDir(), Raft: freePort(t), API: freePort(t), Join: c.follower().spec.API}}
	fresh.start()
	t.Cleanup(fresh.kill)
	eventually(t, "it votes, though it asked a follower", func() bool {
		members, _ := to.status()["members"].([]any)
		for _, m := range members {
			if m := m.(map[string]any); m["id"] == "n4" && m["voter"] == true {
				return true
			}
		}
		return false
	})
}

// TestSessionSurvivesItsLeader: a session and its lease are found again by unary
// calls after the leader was killed.
func TestSessionSurvivesItsLeader(t *testing.T) {
	c := startCluster(t, 3)
	_, first := post(t, c.leader().spec.API, "/v1/acquire", `{"resource":"a","ttl":"10m"}`)
	c.leader().kill()
	eventually(t, "another leader", func() bool { return c.leader() != nil })
	session := first["sessionId"].(string)
	tries := 0
	settled := func(path, body string) (code int, answer map[string]any) { // a busy machine may elect once more
		eventually(t, "an answer of a leader that stays", func() bool {
			leader := c.leader()
			if leader == nil {
				return false
			}
			tries++
			code, answer = post(t, leader.spec.API, path, strings.ReplaceAll(body, "TRY", fmt.Sprint(tries)))
			return code != http.StatusServiceUnavailable && code != http.StatusGatewayTimeout
		})
		return code, answer
	}
	code, renewed := settled("/v1/renew", `{"sessionId":"`+session+`"}`)
	require.Equal(t, http.StatusOK, code, renewed)
	require.Equal(t, []any{first["token"]}, renewed["tokens"])
	code, second := settled("/v1/acquire", `{"resource":"b/TRY","sessionId":"`+session+`"}`)
	require.Equal(t, http.StatusOK, code, second)
	require.NotEqual(t, first["nonce"], second["nonce"])
	code, closed := settled("/v1/close-session", `{"sessionId":"`+session+`"}`)
	require.Equal(t, http.StatusOK, code, closed)
	var third map[string]any
	eventually(t, "the lock is free", func() bool { // what an uncertain try got ends with its session
		code, third = settled("/v1/acquire", `{"resource":"a","ttl":"1s"}`)
		return code == http.StatusOK
	})
	require.Greater(t, third["token"], first["token"])
}
