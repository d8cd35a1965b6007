//go:build unix

package e2e

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// A member that lost its majority is alive and not ready. A stopped process is neither.
func TestProbes(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	probe := testserver.FreeAddr(t)
	for i := range c.commands {
		if i == 0 {
			c.commands[i] = append(c.commands[i], "--probe-listen="+probe)
		}
		c.start(i)
	}
	c.complete()
	require.Equal(t, probe+": ok\n", must(t, nil, leased, "health", "--probe="+probe, "--ready"))
	require.Equal(t, c.apis[0]+": ok\n"+c.apis[1]+": ok\n"+c.apis[2]+": ok\n",
		must(t, c.env(), leased, "health", "--ready"))
	require.Error(t, curl(t, "http://"+probe+"/v1/status", "{}"), "only the probes are served")
	require.Error(t, curl(t, "http://"+probe+"/v1/acquire", `{"resource":"a"}`))

	for _, p := range c.servers[1:] {
		p.signal(syscall.SIGKILL)
		<-p.exited
	}
	var out string
	eventually(t, func() bool {
		var code int
		out, code = call(t, nil, leased, "health", "--probe="+probe, "--ready")
		return code == 122
	}, "for the member to report that it is not ready")
	require.Contains(t, out, "there is no leader")
	must(t, nil, leased, "health", "--probe="+probe)
	require.NoError(t, curl(t, "http://"+c.apis[0]+"/livez", ""))
	out, code := call(t, c.env(), leased, "health", "--ready")
	require.Equal(t, 122, code)
	require.Contains(t, out, "the member at "+c.apis[0]+" is not ready: there is no leader")
	require.Contains(t, out, c.apis[1])

	c.servers[0].stop()
	_, code = call(t, nil, leased, "health", "--probe="+probe)
	require.Equal(t, 122, code, "a process that does not answer is not alive")
}

// A member answers probes while it starts, and closes the port when it ends.
func TestProbesWhileStarting(t *testing.T) {
	t.Parallel()
	probe := testserver.FreeAddr(t)
	// It waits for members that do not run.
	p, _ := waiting(t, "--probe-listen="+probe)
	eventually(t, func() bool { return curl(t, "http://"+probe+"/livez", "") == nil }, "for the probes")
	require.Contains(t, exitsWith(t, 122, leased, "health", "--probe="+probe, "--ready"), "not ready")
	p.signal(syscall.SIGTERM)
	p.code()
	require.Contains(t, exitsWith(t, 122, leased, "health", "--probe="+probe), "no member answers at "+probe)
}

// waiting starts a member that waits for two others.
func waiting(t *testing.T, args ...string) (*process, string) {
	t.Helper()
	api := testserver.FreeAddr(t)
	join := api + "," + testserver.FreeAddr(t) + "," + testserver.FreeAddr(t)
	return start(t, nil, append([]string{leased, "serve", "--id=one", "--data=" + t.TempDir() + "/one", "--listen=" + api,
		"--raft-listen=127.0.0.1:0", "--bootstrap-expect=3", "--join=" + join}, args...)...), api
}

// exitsWith runs a command once, which has to exit with a code.
func exitsWith(t *testing.T, want int, args ...string) string {
	t.Helper()
	out, code := call(t, nil, args...)
	require.Equal(t, want, code, out)
	return out
}
