//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"go.yaml.in/yaml/v3"
)

const deploy = "../../../deploy"

// composeFile is deploy/compose.yaml.
type composeFile struct {
	Services map[string]composeService
	Volumes  map[string]any
}

type composeService struct {
	Image, User string
	Command     []string
	Environment map[string]string
	Volumes     []any
	Depends     map[string]struct{ Condition string } `yaml:"depends_on"`
	Healthcheck struct{ Test []string }
}

func readCompose(t *testing.T) composeFile {
	t.Helper()
	var file composeFile
	require.NoError(t, yaml.Unmarshal([]byte(readDeployed(t, "compose.yaml")), &file))
	return file
}

func readDeployed(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, path))
	require.NoError(t, err)
	return string(text)
}

// imageEnv returns the environment variables of the image, which settings of the
// container override.
func imageEnv(t *testing.T) []string {
	t.Helper()
	var env []string
	for _, line := range regexp.MustCompile(`(?m)^ENV (\S+)$`).FindAllStringSubmatch(readDeployed(t, "Containerfile"),
		-1) {
		env = append(env, line[1])
	}
	require.Len(t, env, 2)
	return env
}

// environment returns the variables of a service as NAME=value, in addition to those of
// the image.
func (s composeService) environment(t *testing.T) []string {
	env := imageEnv(t)
	for key, value := range s.Environment {
		env = append(env, key+"="+value)
	}
	return env
}

// The settings in deploy/ are valid.
func TestDeployedSettingsAreValid(t *testing.T) {
	t.Parallel()
	out := must(t, nil, leased, "serve", "--config="+filepath.Join(deploy, "leased.yaml"), "--print-config")
	require.Contains(t, out, `listen: "0.0.0.0:7420"`)
	require.Contains(t, out, `probe-listen: "127.0.0.1:7422"`)

	compose := readCompose(t)
	require.Len(t, compose.Services, 7)
	for _, name := range []string{"node1", "node2", "node3"} {
		service := compose.Services[name]
		out := must(t, service.environment(t), leased, "serve", "--print-config")
		require.Contains(t, out, `id: "`+name+`" # LEASED_ID`)
		require.Contains(t, out, `raft-advertise: "`+name+`:7421" # LEASED_RAFT_ADVERTISE`)
		require.Contains(t, out, `tls-clients: true # LEASED_TLS_CLIENTS`)
		require.Contains(t, out, `redis: ["redis1:6379", "redis2:6379", "redis3:6379"] # LEASED_REDIS`)
		require.Equal(t, "service_completed_successfully", service.Depends["certs"].Condition)
		require.Contains(t, service.Volumes,
			any(map[string]any{"type": "volume", "source": "tls", "target": "/tls", "read_only": true,
				"volume": map[string]any{"subpath": name}}), "a member sees its own key only")
	}
}

// The services of compose.yaml work as processes on this machine, with other addresses
// and folders: the certificates, three Redis nodes and three members that become ready.
func TestComposedServiceRuns(t *testing.T) {
	t.Parallel()
	compose := readCompose(t)
	dir := t.TempDir()
	certs := strings.Split(strings.ReplaceAll(strings.Join(compose.Services["certs"].Command, "\n"), "/tls", dir), "\n")
	must(t, nil, append([]string{leased}, certs...)...)
	must(t, nil, append([]string{leased}, certs...)...) // as every `docker compose up` does

	addresses := []string{}
	nodes := []string{"node1", "node2", "node3"}
	for i, redis := range []string{"redis1", "redis2", "redis3"} {
		for _, outside := range []string{redis + ":6379", nodes[i] + ":7420", nodes[i] + ":7421"} {
			addresses = append(addresses, outside, testserver.FreeAddr(t))
		}
	}
	here := strings.NewReplacer(addresses...)
	for _, name := range []string{"redis1", "redis2", "redis3"} {
		_, port, _ := strings.Cut(here.Replace(name+":6379"), ":")
		start(t, nil, append(slices.Clone(compose.Services[name].Command), "--port", port, "--bind", "127.0.0.1", "--dir",
			t.TempDir())...)
	}
	envs := map[string][]string{}
	for _, name := range nodes {
		own := strings.NewReplacer("0.0.0.0:7420", here.Replace(name+":7420"), "0.0.0.0:7421", here.Replace(name+":7421"),
			"127.0.0.1:7422", testserver.FreeAddr(t), "/tls/", filepath.Join(dir, name)+"/", "/var/lib/leased",
			t.TempDir()+"/data")
		for _, variable := range compose.Services[name].environment(t) {
			envs[name] = append(envs[name], here.Replace(own.Replace(variable)))
		}
		start(t, envs[name], leased, "serve", "--redis-max-ttl=10s") // the time until new Redis nodes vote
	}
	for _, name := range nodes {
		check := compose.Services[name].Healthcheck.Test
		require.Equal(t, []string{"CMD", "/leased"}, check[:2])
		require.Contains(t, must(t, envs[name], append([]string{leased}, check[2:]...)...), ": ok")
	}
	require.Contains(t, must(t, envs["node1"], leased, "cluster", "status"), here.Replace("node3:7420"))
	client := []string{"LEASED_ENDPOINT=" + here.Replace("node1:7420,node2:7420,node3:7420"), "LEASED_CLIENT_TLS_CA=" +
		filepath.Join(dir, "client", "ca.pem"),
		"LEASED_CLIENT_TLS_CERT=" + filepath.Join(dir, "client", "cert.pem"), "LEASED_CLIENT_TLS_KEY=" +
			filepath.Join(dir, "client", "key.pem")}
	must(t, client, leased, "run", "nightly", "--", "true")
	must(t, client, leased, "policy", "set", "report/*", "--mode", "efficiency")
	require.Contains(t, must(t, client, leased, "run", "report/may", "--", "sh", "-c", "echo token $LEASED_TOKEN"),
		"token ")
}

// leased certs makes certificates with which a member serves and a client calls it.
func TestCertificatesWork(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tls")
	out := must(t, nil, leased, "certs", "--dir="+dir, "--member=one", "--client=alice")
	require.Contains(t, out, "tls-key: "+filepath.Join(dir, "one", "key.pem"))
	flags := func(name string) []string {
		return []string{"--tls-ca=" + filepath.Join(dir, name, "ca.pem"), "--tls-cert=" +
			filepath.Join(dir, name, "cert.pem"), "--tls-key=" + filepath.Join(dir, name, "key.pem")}
	}
	api, probe := testserver.FreeAddr(t), testserver.FreeAddr(t)
	p := start(t, nil, append([]string{leased, "serve", "--id=one", "--data=" + t.TempDir() + "/one", "--listen=" + api,
		"--raft-listen=127.0.0.1:0",
		"--probe-listen=" + probe, "--bootstrap-expect=1", "--tls-clients"}, flags("one")...)...)
	p.says(leads)
	must(t, endpoint(api), append(append([]string{leased, "run", "nightly"}, flags("alice")...), "--", "true")...)
	must(t, endpoint(api), append([]string{leased, "health", "--ready"}, flags("alice")...)...)
	require.Error(t, curl(t, "https://"+api+"/readyz", ""), "the API requires a certificate")
	require.NoError(t, curl(t, "http://"+probe+"/readyz", ""), "the probes do not")

	// A renewed certificate is loaded by SIGHUP. A key is replaced only on request.
	must(t, nil, leased, "certs", "--dir="+dir, "--member=one")
	p.signal(1)
	p.says("reloaded the certificate")
	must(t, endpoint(api), append(append([]string{leased, "run", "nightly"}, flags("alice")...), "--", "true")...)
	require.NoError(t, os.Remove(filepath.Join(dir, "alice", "cert.pem")))
	require.Contains(t, exits(t, 2, nil, leased, "certs", "--dir="+dir, "--client=alice"), "--force")
	must(t, nil, leased, "certs", "--dir="+dir, "--client=alice", "--force")
	must(t, endpoint(api), append(append([]string{leased, "run", "nightly"}, flags("alice")...), "--", "true")...)
}
