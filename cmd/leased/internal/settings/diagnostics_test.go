package settings_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDiagnosticsAreOffByDefault(t *testing.T) {
	s, err := load(t, "", nil, least...)
	require.NoError(t, err)
	require.Empty(t, s.TraceEndpoint)
	require.Empty(t, s.PprofListen)
	require.InDelta(t, 1, s.TraceSample, 0)
	s, err = load(t, "trace-endpoint: http://collector:4318\ntrace-sample: 0.25\n",
		map[string]string{"LEASED_PPROF_LISTEN": "[::1]:6060"}, least...)
	require.NoError(t, err)
	require.InDelta(t, 0.25, s.TraceSample, 0)
	require.Equal(t, "[::1]:6060", s.PprofListen)
}

// Profiles are never offered to other machines, and a password in a URL is not repeated.
func TestWrongDiagnosticsAreRefused(t *testing.T) {
	for arg, says := range map[string]string{
		"--pprof-listen=0.0.0.0:6060":                  "must be a loopback address",
		"--pprof-listen=:6060":                         "must be a loopback address",
		"--pprof-listen=6060":                          "must be HOST:PORT",
		"--trace-endpoint=collector:4318":              "must be the URL",
		"--trace-endpoint=grpc://collector:4317":       "must be the URL",
		"--trace-endpoint=http://ann:hunter2@host:431": "without a password",
		"--trace-sample=2":                             "must be a number from 0 to 1",
		"--trace-sample=NaN":                           "must be a number from 0 to 1",
	} {
		s, err := load(t, "", nil, append([]string{arg}, least...)...)
		require.ErrorContains(t, err, says, arg)
		require.NotContains(t, err.Error(), "hunter2")
		require.NotContains(t, s.Print(), "hunter2")
	}
}
