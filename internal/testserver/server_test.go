package testserver_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

func TestServersStartAndStop(t *testing.T) {
	for name, start := range map[string]func() (*testserver.Server, error){
		"postgres": testserver.StartPostgres,
		"mariadb":  testserver.StartMariaDB,
	} {
		t.Run(name, func(t *testing.T) {
			shared := testserver.Shared{Start: start}
			s := shared.Get(t)
			require.Same(t, s, shared.Get(t))
			conn, err := net.Dial("tcp", s.Addr)
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			shared.Stop()
			_, err = net.Dial("tcp", s.Addr)
			require.Error(t, err, "nothing may listen after Stop")
			require.NoDirExists(t, s.Dir)
		})
	}
}
