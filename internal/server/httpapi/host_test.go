package httpapi_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server/httpapi"
)

func TestKnownHost(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"", "127.0.0.1", "127.0.0.1:7400", "10.0.0.7:80", "[::1]", "[::1]:7400", "localhost",
		"LocalHost:7400",
		"leased.localhost:7400", "n1.internal", "N1.internal:7400", "n1.internal:9"} {
		require.True(t, httpapi.KnownHost(host, "n1.internal:7400"), host)
	}
	for _, host := range []string{"example.com", "example.com:7400", "127.0.0.1.example.com:7400", "localhost.example.com",
		"notlocalhost",
		"n1.internal.example.com:7400", "n2.internal:7400", ":7400", "127.0.0.1@example.com", "[::1].example.com",
		"0x7f000001"} {
		require.False(t, httpapi.KnownHost(host, "n1.internal:7400"), host)
	}
	require.False(t, httpapi.KnownHost(":7400", ":7400"), "an address without a host names no host")
}
