//go:build unix

package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/raftstore/transport"
	"go.yaml.in/yaml/v3"
)

// pods are the names of the pods of the StatefulSet, which are the ids of the members.
var pods = []string{"leased-0", "leased-1", "leased-2"}

// manifest is the part of a Kubernetes object that these tests read. tools/manifests
// checks that all fields exist.
type manifest struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Data     map[string]string
	Spec     struct {
		Replicas    int
		ServiceName string `yaml:"serviceName"`
		Policy      string `yaml:"podManagementPolicy"`
		Selector    map[string]any
		PodSelector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		} `yaml:"podSelector"`
		Ingress         []struct{ Ports []struct{ Port string } }
		ClusterIP       string                                     `yaml:"clusterIP"`
		PublishNotReady bool                                       `yaml:"publishNotReadyAddresses"`
		Ports           []struct{ Name, TargetPort string }        `yaml:"ports"`
		Unavailable     int                                        `yaml:"maxUnavailable"`
		Claims          []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
		Template        struct {
			Metadata struct{ Labels map[string]string }
			Spec     podSpec
		}
	}
}

type podSpec struct {
	Grace      int             `yaml:"terminationGracePeriodSeconds"`
	Security   securityContext `yaml:"securityContext"`
	Containers []container
	Volumes    []struct{ Name string }
}

type securityContext struct {
	NonRoot  bool                    `yaml:"runAsNonRoot"`
	Seccomp  struct{ Type string }   `yaml:"seccompProfile"`
	ReadOnly bool                    `yaml:"readOnlyRootFilesystem"`
	Escalate *bool                   `yaml:"allowPrivilegeEscalation"`
	Caps     struct{ Drop []string } `yaml:"capabilities"`
}

type container struct {
	Args  []string
	Env   []struct{ Name, Value string }
	Ports []struct {
		Name string
		Port int `yaml:"containerPort"`
	}
	Startup   probe `yaml:"startupProbe"`
	Liveness  probe `yaml:"livenessProbe"`
	Readiness probe `yaml:"readinessProbe"`
	Resources struct{ Requests, Limits map[string]string }
	Security  securityContext `yaml:"securityContext"`
	Mounts    []struct {
		Name        string
		Path        string `yaml:"mountPath"`
		SubPath     string `yaml:"subPath"`
		SubPathExpr string `yaml:"subPathExpr"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	Get struct{ Path, Port string } `yaml:"httpGet"`
}

// kustomization is deploy/kubernetes/kustomization.yaml.
type kustomization struct {
	Namespace string
	Resources []string
	Secrets   []struct {
		Name  string
		Files []string
	} `yaml:"secretGenerator"`
}

func readKustomization(t *testing.T) (k kustomization) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(readDeployed(t, "kubernetes/kustomization.yaml")), &k))
	return k
}

// readManifests returns the objects of the kustomization as "Kind/name".
func readManifests(t *testing.T) map[string]manifest {
	t.Helper()
	objects := map[string]manifest{}
	for _, path := range append(readKustomization(t).Resources, "redis/redis.yaml") {
		decoder := yaml.NewDecoder(strings.NewReader(readDeployed(t, "kubernetes/"+path)))
		for {
			var object manifest
			if decoder.Decode(&object) != nil {
				break
			}
			objects[object.Kind+"/"+object.Metadata.Name] = object
		}
	}
	require.Len(t, objects, 11)
	return objects
}

// podEnv returns the environment of a pod's container, with that of the image.
func podEnv(t *testing.T, c container, pod string) []string {
	env := append(imageEnv(t), "POD_NAME="+pod)
	for _, variable := range c.Env {
		if variable.Value != "" {
			env = append(env, variable.Name+"="+strings.ReplaceAll(variable.Value, "$(POD_NAME)", pod))
		}
	}
	return env
}

// setting returns the value of a setting in the output of --print-config.
func setting(t *testing.T, out, key string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + key + `: (.*) # `).FindStringSubmatch(out)
	require.NotNil(t, found, key)
	return strings.Trim(found[1], `"`)
}

// The ports, paths and names in the manifests are those of the settings, which are
// valid.
func TestKubernetesSettings(t *testing.T) {
	t.Parallel()
	objects := readManifests(t)
	set := objects["StatefulSet/leased"].Spec
	c := set.Template.Spec.Containers[0]
	require.Equal(t, len(pods), set.Replicas)
	require.Equal(t, []string{"serve"}, c.Args)
	file := filepath.Join(t.TempDir(), "leased.yaml")
	require.NoError(t, os.WriteFile(file, []byte(objects["ConfigMap/leased"].Data["leased.yaml"]), 0o600))
	mounted := map[string]string{}
	for _, m := range c.Mounts {
		mounted[m.Path] = m.SubPath + m.SubPathExpr
	}
	for _, pod := range pods {
		out := must(t, append(podEnv(t, c, pod), "LEASED_CONFIG="+file), leased, "serve", "--print-config")
		require.Equal(t, pod, setting(t, out, "id"))
		for port, key := range map[string]string{"api": "listen", "raft": "raft-listen", "probe": "probe-listen"} {
			require.Equal(t, fmt.Sprintf("0.0.0.0:%d", portOf(t, c, port)), setting(t, out, key))
		}
		host := pod + "." + set.ServiceName + "." + readKustomization(t).Namespace + ".svc.cluster.local"
		require.Equal(t, fmt.Sprintf("%s:%d", host, portOf(t, c, "api")), setting(t, out, "advertise"))
		require.Equal(t, fmt.Sprintf("%s:%d", host, portOf(t, c, "raft")), setting(t, out, "raft-advertise"))
		require.Contains(t, setting(t, out, "join"), setting(t, out, "advertise"))
		require.Equal(t, fmt.Sprint(set.Replicas), setting(t, out, "bootstrap-expect"))
		require.Equal(t, "true", setting(t, out, "tls-clients"))
		require.Equal(t, "/var/lib/leased", filepath.Dir(setting(t, out, "data")))
		for _, key := range []string{"tls-ca", "tls-cert", "tls-key"} {
			require.Contains(t, mounted, setting(t, out, key))
		}
		for _, variable := range c.Env {
			if key, ours := strings.CutPrefix(variable.Name, "LEASED_"); ours && key != "CONFIG" &&
				!strings.HasPrefix(key, "CLIENT_") {
				setting(t, out, strings.ToLower(strings.ReplaceAll(key, "_", "-")))
			}
		}
	}
	require.Contains(t, mounted, "/var/lib/leased")
	require.Equal(t, "data", set.Claims[0].Metadata.Name)
	require.Equal(t, probe{Get: struct{ Path, Port string }{"/livez", "probe"}}, c.Startup)
	require.Equal(t, "/livez", c.Liveness.Get.Path)
	require.Equal(t, "probe", c.Liveness.Get.Port)
	require.Equal(t, "/readyz", c.Readiness.Get.Path)
	require.Equal(t, "probe", c.Readiness.Get.Port)
	require.GreaterOrEqual(t, set.Template.Spec.Grace, 15, "a member transfers leadership, for at most eight seconds")
}

func portOf(t *testing.T, c container, name string) int {
	t.Helper()
	for _, p := range c.Ports {
		if p.Name == name {
			return p.Port
		}
	}
	require.Fail(t, "no port "+name)
	return 0
}

// Services, budgets and network policies select the pods that they are for. Members
// find each other before they are ready.
func TestKubernetesObjectsFit(t *testing.T) {
	t.Parallel()
	objects := readManifests(t)
	for name, services := range map[string][]string{"leased": {"leased-members", "leased"},
		"leased-redis": {"leased-redis"}} {
		set := objects["StatefulSet/"+name].Spec
		labels := map[string]any{}
		for key, value := range set.Template.Metadata.Labels {
			labels[key] = value
		}
		require.Len(t, labels, 1)
		require.Equal(t, map[string]any{"matchLabels": labels}, set.Selector)
		require.Equal(t, "Parallel", set.Policy)
		budget := objects["PodDisruptionBudget/"+name].Spec
		require.Equal(t, map[string]any{"matchLabels": labels}, budget.Selector)
		require.Equal(t, 1, budget.Unavailable)
		network := objects["NetworkPolicy/"+name].Spec
		require.Equal(t, set.Template.Metadata.Labels, network.PodSelector.MatchLabels)
		for _, rule := range network.Ingress {
			for _, p := range rule.Ports {
				portOf(t, set.Template.Spec.Containers[0], p.Port)
			}
		}
		for _, service := range services {
			spec := objects["Service/"+service].Spec
			require.Equal(t, labels, spec.Selector)
			require.NotEmpty(t, spec.Ports)
			for _, p := range spec.Ports {
				portOf(t, set.Template.Spec.Containers[0], p.Name)
			}
		}
		require.Equal(t, "None", objects["Service/"+set.ServiceName].Spec.ClusterIP)
		c := set.Template.Spec.Containers[0]
		require.True(t, set.Template.Spec.Security.NonRoot)
		require.Equal(t, "RuntimeDefault", set.Template.Spec.Security.Seccomp.Type)
		require.True(t, c.Security.ReadOnly)
		require.False(t, *c.Security.Escalate)
		require.Equal(t, []string{"ALL"}, c.Security.Caps.Drop)
		require.NotEmpty(t, c.Resources.Requests["memory"])
		require.NotEmpty(t, c.Resources.Limits["memory"])
	}
	require.True(t, objects["Service/leased-members"].Spec.PublishNotReady)
	require.False(t, objects["Service/leased"].Spec.PublishNotReady)
	require.Equal(t, readCompose(t).Services["redis1"].Command,
		objects["StatefulSet/leased-redis"].Spec.Template.Spec.Containers[0].Args)
	require.Equal(t, readKustomization(t).Namespace, objects["Namespace/leased"].Metadata.Name)
}

// kubernetesCerts runs the command in the comment of the kustomization and returns its
// folder.
func kubernetesCerts(t *testing.T) string {
	t.Helper()
	script := ""
	for line := range strings.Lines(readDeployed(t, "kubernetes/kustomization.yaml")) {
		if command, ok := strings.CutPrefix(line, "#   "); ok && !strings.HasPrefix(command, "kubectl") {
			script += command
		}
	}
	require.Contains(t, script, "leased certs")
	dir := t.TempDir()
	shell := exec.Command("sh", "-euc", script)
	shell.Dir = dir
	shell.Env = append(os.Environ(), "PATH="+filepath.Dir(leased)+":"+os.Getenv("PATH"))
	out, err := shell.CombinedOutput()
	require.NoError(t, err, string(out))
	return dir
}

// The settings of the pods work as processes on this machine, with other addresses and
// folders: three members form a cluster and become ready.
func TestKubernetesMembersRun(t *testing.T) {
	t.Parallel()
	objects := readManifests(t)
	set := objects["StatefulSet/leased"].Spec
	c := set.Template.Spec.Containers[0]
	tls := filepath.Join(kubernetesCerts(t), "deploy/kubernetes/tls")
	var addresses []string
	for _, pod := range pods {
		host := pod + "." + set.ServiceName + "." + readKustomization(t).Namespace + ".svc.cluster.local"
		addresses = append(addresses, host+":7420", testserver.FreeAddr(t), host+":7421", testserver.FreeAddr(t))
	}
	here := strings.NewReplacer(addresses...)
	envs := map[string][]string{}
	for i, pod := range pods {
		dir, api, raft := t.TempDir(), addresses[4*i+1], addresses[4*i+3]
		own := strings.NewReplacer("0.0.0.0:7420", api, "0.0.0.0:7421", raft, "0.0.0.0:7422", testserver.FreeAddr(t), "/tls/",
			filepath.Join(tls, pod)+"/",
			"/var/lib/leased", dir, "/etc/leased", dir)
		file := here.Replace(own.Replace(objects["ConfigMap/leased"].Data["leased.yaml"]))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "leased.yaml"), []byte(file), 0o600))
		for _, variable := range podEnv(t, c, pod) {
			envs[pod] = append(envs[pod], here.Replace(own.Replace(variable)))
		}
		envs[pod] = append(envs[pod], "LEASED_ENDPOINT="+api) // in the pod it is the default
		start(t, envs[pod], append([]string{leased}, c.Args...)...)
	}
	for _, pod := range pods {
		require.Contains(t, must(t, envs[pod], leased, "health", "--ready"), ": ok")
	}
	require.Contains(t, must(t, envs[pods[0]], leased, "cluster", "status"), pods[2])
	must(t, envs[pods[1]], leased, "run", "nightly", "--", "true")
}

// The command in the comment of the kustomization makes the files of the Secret. Each
// pod gets a certificate with its id that is valid for its names, and only its own key.
func TestKubernetesCertificates(t *testing.T) {
	t.Parallel()
	dir := kubernetesCerts(t)
	k := readKustomization(t)
	files := map[string]string{} // in the Secret, and their source
	for _, file := range k.Secrets[0].Files {
		key, source, _ := strings.Cut(file, "=")
		files[key] = filepath.Join(dir, "deploy/kubernetes", source)
		require.FileExists(t, files[key])
		require.NotContains(t, source, "ca.key")
	}
	c := readManifests(t)["StatefulSet/leased"].Spec.Template.Spec.Containers[0]
	for _, pod := range pods {
		var paths []string
		for _, m := range c.Mounts {
			if m.Name == "tls" {
				key := m.SubPath + strings.ReplaceAll(m.SubPathExpr, "$(POD_NAME)", pod)
				require.Contains(t, files, key)
				paths = append(paths, m.Path)
			}
		}
		require.Equal(t, []string{"/tls/ca.pem", "/tls/cert.pem", "/tls/key.pem"}, slices.Sorted(slices.Values(paths)))
		text, err := os.ReadFile(files[pod+".pem"])
		require.NoError(t, err)
		block, _ := pem.Decode(text)
		cert, err := x509.ParseCertificate(block.Bytes)
		require.NoError(t, err)
		require.Equal(t, []string{pod}, transport.MemberIDs(cert))
		for _, variable := range podEnv(t, c, pod) {
			if address, ok := strings.CutPrefix(variable, "LEASED_ADVERTISE="); ok {
				host, _, err := net.SplitHostPort(address)
				require.NoError(t, err)
				require.NoError(t, cert.VerifyHostname(host))
			}
		}
		require.NoError(t, cert.VerifyHostname("leased."+k.Namespace+".svc"), "the address of the service")
		require.NoError(t, cert.VerifyHostname("127.0.0.1"), "commands in the pod")
	}
}
