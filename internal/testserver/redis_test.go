package testserver_test

import (
	"bufio"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// ask sends one inline command and returns the first line of the reply.
func ask(t *testing.T, addr, command string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte(command + "\r\n"))
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	return line
}

func TestRedisKeepsDataOnlyWithAppendOnly(t *testing.T) {
	for name, c := range map[string]struct {
		options []testserver.RedisOption
		end     func(*testserver.RedisServer)
		size    string
	}{
		"memory, stopped": {nil, (*testserver.RedisServer).Stop, ":0\r\n"},
		"append only, stopped": {[]testserver.RedisOption{testserver.RedisAppendOnly()}, (*testserver.RedisServer).Stop,
			":1\r\n"},
		"append only, killed": {[]testserver.RedisOption{testserver.RedisAppendOnly()}, (*testserver.RedisServer).Kill,
			":1\r\n"},
		"append only, emptied": {[]testserver.RedisOption{testserver.RedisAppendOnly()},
			func(s *testserver.RedisServer) { _ = s.Wipe() }, ":0\r\n"},
		"with an environment": {[]testserver.RedisOption{testserver.RedisEnv("TZ", "UTC")}, (*testserver.RedisServer).Kill,
			":0\r\n"},
		"with a configuration": {[]testserver.RedisOption{testserver.RedisConfig("maxmemory-policy", "noeviction")},
			(*testserver.RedisServer).Kill, ":0\r\n"},
		"with several settings": {[]testserver.RedisOption{testserver.RedisAppendOnly(),
			testserver.RedisConfig("maxclients", "50")}, (*testserver.RedisServer).Stop, ":1\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := testserver.Redis(t, c.options...)
			require.Equal(t, "+OK\r\n", ask(t, s.Addr, "SET key value"))
			require.Error(t, s.Start(), "it is already running")
			c.end(s)
			_, err := net.Dial("tcp", s.Addr)
			require.Error(t, err, "nothing may listen on the address now")
			require.Zero(t, s.Pid())
			require.NoError(t, s.Start())
			require.Equal(t, c.size, ask(t, s.Addr, "DBSIZE"))
		})
	}
}

func TestRedisPauseAndResume(t *testing.T) {
	s := testserver.Redis(t)
	s.Pause()
	conn, err := net.Dial("tcp", s.Addr)
	require.NoError(t, err, "the kernel accepts the connection")
	defer conn.Close()
	_, err = conn.Write([]byte("PING\r\n"))
	require.NoError(t, err)
	s.Resume()
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "+PONG\r\n", line)
	require.Contains(t, s.LogEnd(), "Ready to accept connections")
	s.Pause()
	s.Close()
	require.NoDirExists(t, s.Dir)
}
