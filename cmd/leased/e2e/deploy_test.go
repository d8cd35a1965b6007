//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"go.yaml.in/yaml/v3"
)

const deploy = "../../../deploy"

// The settings in deploy/ are valid.
func TestDeployedSettingsAreValid(t *testing.T) {
	t.Parallel()
	out := must(t, nil, leased, "serve", "--config="+filepath.Join(deploy, "leased.yaml"), "--print-config")
	require.Contains(t, out, `listen: "0.0.0.0:7420"`)

	text, err := os.ReadFile(filepath.Join(deploy, "compose.yaml"))
	require.NoError(t, err)
	var compose struct {
		Services map[string]struct {
			Environment map[string]string
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &compose))
	require.Len(t, compose.Services, 6)
	for name, service := range compose.Services {
		if strings.HasPrefix(name, "redis") {
			continue
		}
		env := []string{"LEASED_DATA=/var/lib/leased"} // as in the Containerfile
		for key, value := range service.Environment {
			env = append(env, key+"="+value)
		}
		out := must(t, env, leased, "serve", "--print-config")
		require.Contains(t, out, `id: "`+name+`" # LEASED_ID`)
		require.Contains(t, out, `raft-advertise: "`+name+`:7421" # LEASED_RAFT_ADVERTISE`)
		require.Contains(t, out, `tls-clients: true # LEASED_TLS_CLIENTS`)
		require.Contains(t, out, `redis: ["redis1:6379", "redis2:6379", "redis3:6379"] # LEASED_REDIS`)
	}
}

// The certificates of deploy/certs work for a member and a client.
func TestDeployedCertificatesWork(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, nil, filepath.Join(deploy, "certs"), dir, "127.0.0.1")
	must(t, nil, filepath.Join(deploy, "certs"), dir, "127.0.0.1", "localhost") // adds one and keeps the others
	flags := func(name string) []string {
		return []string{"--tls-ca=" + filepath.Join(dir, "ca.pem"), "--tls-cert=" + filepath.Join(dir, name+".pem"), "--tls-key=" + filepath.Join(dir, name+".key")}
	}
	api := testserver.FreeAddr(t)
	p := start(t, nil, append([]string{leased, "serve", "--id=one", "--data=" + t.TempDir() + "/one", "--listen=" + api, "--raft-listen=127.0.0.1:0",
		"--bootstrap-expect=1", "--tls-clients"}, flags("127.0.0.1")...)...)
	p.says(leads)
	must(t, endpoint(api), append(append([]string{leased, "run", "nightly"}, flags("client")...), "--", "true")...)
	require.FileExists(t, filepath.Join(dir, "localhost.pem"))
}
