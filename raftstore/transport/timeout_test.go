package transport

import (
	"bufio"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// A call that had no answer in time closes its connection: on a connection that is used
// again, the late answer would be taken for the answer to the next request.
func TestConnectionOfATimedOutCallIsNotReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pause := make(chan time.Duration, 3) // before each answer
		dialed := 0
		a := newAppender(func(member) (net.Conn, error) {
			dialed++
			here, there := net.Pipe()
			go answerAppends(there, pause)
			return here, nil
		})
		to := member{id: "n1", address: "n1:1"}
		call := func(term uint64, after time.Duration) (*raft.AppendEntriesResponse, error) {
			pause <- after
			var response raft.AppendEntriesResponse
			err := a.call(to, &raft.AppendEntriesRequest{Term: term}, &response)
			return &response, err
		}
		response, err := call(1, rpcTimeout-time.Second)
		require.NoError(t, err, "a slow answer")
		require.EqualValues(t, 1, response.Term)
		began := time.Now()
		_, err = call(2, 2*rpcTimeout)
		require.ErrorContains(t, err, "append entries to member n1: no answer within 10s")
		require.Equal(t, rpcTimeout, time.Since(began))
		response, err = call(3, 0)
		require.NoError(t, err)
		require.EqualValues(t, 3, response.Term, "the answer to this request")
		require.Equal(t, 2, dialed)
		for _, idle := range a.idle[to] {
			idle.Close()
		}
		<-time.After(2 * rpcTimeout) // the late answer fails
	})
}

// answerAppends answers each request with its own term, after a pause.
func answerAppends(conn net.Conn, pause <-chan time.Duration) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	if _, err := in.Discard(2); err != nil { // the format and its version
		return
	}
	var size [4]byte
	for {
		body, err := readMessage(in, &size)
		if err != nil {
			return
		}
		request, err := decodeRequest(body)
		if err != nil {
			return
		}
		<-time.After(<-pause)
		if _, err := conn.Write(appendResponse(nil, &raft.AppendEntriesResponse{Term: request.Term}, nil)); err != nil {
			return
		}
	}
}
