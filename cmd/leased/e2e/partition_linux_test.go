package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// partition is two network namespaces with a virtual link between them.
type partition struct {
	t            *testing.T
	here, there  string // names of the namespaces
	server, link string // the server's address, the client's end of the link
}

// newPartition needs the right to create network namespaces, as root has.
func newPartition(t *testing.T) *partition {
	t.Helper()
	id := os.Getpid() % 10000
	w := &partition{t: t, here: fmt.Sprintf("leased-s%d", id), there: fmt.Sprintf("leased-c%d", id), server: "10.77.0.1",
		link: fmt.Sprintf("lc%d", id)}
	other := fmt.Sprintf("ls%d", id)
	for _, name := range []string{w.here, w.there} {
		w.ip("netns", "add", name)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
		w.ip("-n", name, "link", "set", "lo", "up")
	}
	w.ip("link", "add", other, "netns", w.here, "type", "veth", "peer", "name", w.link, "netns", w.there)
	w.ip("-n", w.here, "addr", "add", w.server+"/24", "dev", other)
	w.ip("-n", w.there, "addr", "add", "10.77.0.2/24", "dev", w.link)
	w.ip("-n", w.here, "link", "set", other, "up")
	w.ip("-n", w.there, "link", "set", w.link, "up")
	return w
}

func (w *partition) ip(args ...string) {
	w.t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	require.NoError(w.t, err, "ip %v: %s (this test needs root and iproute2)", args, out)
}

func in(namespace string, args ...string) []string {
	return append([]string{"ip", "netns", "exec", namespace}, args...)
}

// The network between `leased run` and the service is cut while a command runs that
// ignores SIGTERM. When the service grants the lock to the next holder, the command
// and its child are dead.
func TestPartition(t *testing.T) {
	t.Parallel()
	w := newPartition(t)
	a := newAuthority(t)
	a.issue("server", w.server, "one")
	api := w.server + ":7420"
	server := start(t, nil,
		in(w.here, append([]string{leased, "serve", "--id=one", "--data=" + t.TempDir() + "/one", "--listen=" + api,
			"--raft-listen=" + w.server + ":7421", "--bootstrap-expect=1"}, a.flags("server")...)...)...)
	server.says(leads)
	client := []string{"--endpoint=" + api, a.ca()}

	witness := newWitness(t)
	run := append([]string{leased, "run", "nightly", "--ttl=10s"}, client...)
	p := start(t, nil, in(w.there, append(run, "--", "sh", "-c", witness.stubborn())...)...)
	witness.awaitStart()
	out, code := call(t, nil, in(w.here, append([]string{leased, "acquire", "nightly"}, client...)...)...)
	require.Equal(t, 120, code, out)

	w.ip("-n", w.there, "link", "set", w.link, "down")
	out = must(t, nil, in(w.here, append([]string{leased, "acquire", "nightly", "--wait=1m"}, client...)...)...)
	require.True(t, witness.dead(), "the command is alive, but the lock was granted to another holder: %s", out)
	require.Equal(t, 121, p.code())
	require.Contains(t, p.output.String(), "lease was not renewed in time")
}
