package transport

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/golden"
)

// sampleRequest uses every field of a request.
func sampleRequest() *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("n1"),
		Addr: []byte("127.0.0.1:7000")},
		Term: 7, PrevLogEntry: 1 << 40, PrevLogTerm: 6, LeaderCommitIndex: 300, Entries: []*raft.Log{
			{Index: 1<<40 + 1, Term: 7, Type: raft.LogCommand, Data: []byte("commands"), AppendedAt: time.Unix(1_700_000_000,
				5).UTC()},
			{Index: 1<<40 + 2, Term: 7, Type: raft.LogConfiguration, Data: bytes.Repeat([]byte{0xff}, 200),
				Extensions: []byte("more")},
			{Index: 1<<40 + 3, Term: 7, Type: raft.LogNoop},
		}}
}

func sampleResponse() *raft.AppendEntriesResponse {
	return &raft.AppendEntriesResponse{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("n2"),
		Addr: []byte("127.0.0.1:7001")},
		Term: 7, LastLog: 1<<40 + 3, Success: true, NoRetryBackoff: true}
}

// message returns the fields of an encoded message.
func message(t *testing.T, data []byte) []byte {
	t.Helper()
	body, err := readMessage(bytes.NewReader(data), new([4]byte))
	require.NoError(t, err)
	return body
}

func TestAppendMessages(t *testing.T) {
	request, err := decodeRequest(message(t, appendRequest(nil, sampleRequest())))
	require.NoError(t, err)
	require.Equal(t, sampleRequest(), request)

	var response raft.AppendEntriesResponse
	answer, err := decodeResponse(message(t, appendResponse(nil, sampleResponse(), nil)), &response)
	require.NoError(t, err)
	require.NoError(t, answer)
	require.Equal(t, sampleResponse(), &response)

	answer, err = decodeResponse(message(t, appendResponse(nil, nil, errors.New("refused"))), &response)
	require.NoError(t, err)
	require.EqualError(t, answer, "refused")
}

// TestGoldenAppend compares the messages with those of version 2: members of different builds
// send them to each other.
func TestGoldenAppend(t *testing.T) {
	data := appendRequest([]byte{appendFormat, AppendVersion}, sampleRequest())
	require.Equal(t, data, golden.Hex(t, "append-request-2.hex", data))
	data = appendResponse(nil, sampleResponse(), nil)
	require.Equal(t, data, golden.Hex(t, "append-response-2.hex", data))
}

func TestMalformedMessages(t *testing.T) {
	whole := message(t, appendRequest(nil, sampleRequest()))
	for size := range whole {
		_, err := decodeRequest(whole[:size])
		require.ErrorIs(t, err, errMessage, "%d bytes of %d", size, len(whole))
	}
	_, err := decodeRequest(append(bytes.Clone(whole), 0))
	require.ErrorIs(t, err, errMessage)
	_, err = readMessage(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff}), new([4]byte))
	require.ErrorIs(t, err, errMessage)
	_, err = readMessage(bytes.NewReader([]byte{0, 0, 0, 2, 1}), new([4]byte))
	require.ErrorIs(t, err, errMessage)
}

// FuzzAppendMessages checks that no input makes a decoder panic, and that everything that
// it accepts has this encoding only.
func FuzzAppendMessages(f *testing.F) {
	f.Add(appendRequest(nil, sampleRequest())[4:])
	f.Add(appendResponse(nil, sampleResponse(), nil)[4:])
	f.Add(appendResponse(nil, nil, errors.New("refused"))[4:])
	f.Fuzz(func(t *testing.T, body []byte) {
		if request, err := decodeRequest(body); err == nil {
			require.Equal(t, hex.EncodeToString(body), hex.EncodeToString(appendRequest(nil, request)[4:]))
		}
		var response raft.AppendEntriesResponse
		if answer, err := decodeResponse(body, &response); err == nil {
			require.Equal(t, hex.EncodeToString(body), hex.EncodeToString(appendResponse(nil, &response, answer)[4:]))
		}
	})
}

// A peer of another build, older or newer, gets no entries accepted. Both sides learn that it
// is about the version, and nothing mentions certificates.
func TestOtherAppendVersionIsRefused(t *testing.T) {
	for _, version := range []byte{0, AppendVersion - 1, AppendVersion + 1} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			line, answer := refusedBytes(t, appendRequest([]byte{appendFormat, version}, sampleRequest()))
			want := fmt.Sprintf("member n1 runs a build that reads version %d, and its peer sends version %d", AppendVersion,
				version)
			require.ErrorContains(t, answer, want)
			require.Contains(t, line, want)
			require.NotContains(t, line, "certificate")
		})
	}
	t.Run("malformed", func(t *testing.T) {
		line, answer := refusedBytes(t, []byte{appendFormat, AppendVersion, 0, 0, 0, 1, 0xff})
		require.ErrorContains(t, answer, errMessage.Error())
		require.Contains(t, line, "another build")
	})
}

// refusedBytes sends the first bytes of a connection, which must not reach the node. It returns
// the line in the log and the answer to the peer.
func refusedBytes(t *testing.T, data []byte) (line string, answer error) {
	t.Helper()
	lines, output := io.Pipe()
	defer lines.Close()
	read := func(raft.RPC) bool {
		output.CloseWithError(errors.New("the request was read"))
		return false
	}
	tcp, err := Listen(Config{ID: "n1", Address: "127.0.0.1:0", Admit: read,
		Logger: hclog.New(&hclog.LoggerOptions{Output: output})})
	require.NoError(t, err)
	defer tcp.Close()
	conn, err := net.Dial("tcp", string(tcp.LocalAddr()))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = conn.Write(data)
	require.NoError(t, err)
	line, err = bufio.NewReader(lines).ReadString('\n')
	require.NoError(t, err)
	body, err := readMessage(conn, new([4]byte))
	require.NoError(t, err)
	answer, err = decodeResponse(body, &raft.AppendEntriesResponse{})
	require.NoError(t, err)
	return line, answer
}

// TestAdmit checks that a request that is not admitted does not reach the node.
func TestAdmit(t *testing.T) {
	refused := errors.New("not admitted")
	admit := func(rpc raft.RPC) bool {
		rpc.Respond(nil, refused)
		return false
	}
	to, err := Listen(Config{ID: "n1", Address: "127.0.0.1:0", Admit: admit})
	require.NoError(t, err)
	defer to.Close()
	from, err := Listen(Config{ID: "n2", Address: "127.0.0.1:0"})
	require.NoError(t, err)
	defer from.Close()
	for range 2 { // the connection stays usable
		err = from.AppendEntries("n1", to.LocalAddr(), sampleRequest(), &raft.AppendEntriesResponse{})
		require.EqualError(t, err, refused.Error())
	}
	err = from.RequestVote("n1", to.LocalAddr(), &raft.RequestVoteRequest{}, &raft.RequestVoteResponse{})
	require.EqualError(t, err, refused.Error())
}

// A small message cannot make a member allocate much memory.
func TestEntriesOfARequestAreBounded(t *testing.T) {
	t.Parallel()
	request := sampleRequest()
	request.Entries = nil
	for i := range maxEntries + 1 {
		request.Entries = append(request.Entries, &raft.Log{Index: uint64(i + 1), Term: 7})
	}
	_, err := decodeRequest(message(t, appendRequest(nil, request)))
	require.ErrorIs(t, err, errMessage)
	request.Entries = request.Entries[:maxEntries]
	_, err = decodeRequest(message(t, appendRequest(nil, request)))
	require.NoError(t, err)
}
