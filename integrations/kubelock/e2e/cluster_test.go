// Package e2e_test runs kubelock and the policies against a real kube-apiserver.
package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/yaml"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/integrations/kubelock"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate/kubegate"
)

const (
	admin      = "admin"
	controller = "system:serviceaccount:shop:widgets"
	namespace  = "shop"
	annotation = "fencing-token/widgets"
)

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	widgets     = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

	service = testserver.Shared{Start: testserver.StartService}
	etcd    = testserver.Shared{Start: func() (*testserver.Server, error) {
		return testserver.StartEtcd(program("etcd"))
	}}
	kubernetes testserver.Shared
	prepared   sync.Once
)

// program returns a program that make kube-test has built.
func program(name string) string {
	path, err := filepath.Abs(filepath.Join("../../../out", name))
	if err != nil {
		panic(err)
	}
	return path
}

func TestMain(m *testing.M) {
	if os.Getenv("WRITE") != "" {
		os.Exit(pausedLeader())
	}
	code := m.Run()
	kubernetes.Stop()
	etcd.Stop()
	service.Stop()
	os.Exit(code)
}

// config returns how a user reaches the API server.
func config(addr, user string) *rest.Config {
	return &rest.Config{Host: "https://" + addr, BearerToken: user, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ContentConfig:   rest.ContentConfig{ContentType: "application/json"}}
}

// start returns the address of the API server, which has the policies.
func start(t *testing.T) string {
	t.Helper()
	store := etcd.Get(t)
	prepared.Do(func() {
		kubernetes.Start = func() (*testserver.Server, error) {
			return testserver.StartKubernetes(program("kube-apiserver"), store, admin, controller)
		}
		prepare(t, kubernetes.Get(t).Addr)
	})
	return kubernetes.Get(t).Addr
}

// prepare creates a namespace, a kind of objects, and the policies, and waits until they apply.
func prepare(t *testing.T, addr string) {
	t.Helper()
	ctx, all := testserver.Context(t), as(t, addr, admin)
	policies, err := kubegate.Policy(fencing.Rule{}, controller)
	require.NoError(t, err)
	kinds, err := os.ReadFile("testdata/widgets.yaml")
	require.NoError(t, err)
	for _, text := range strings.Split(policies+"\n---\n"+string(kinds), "\n---\n") {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.UnmarshalStrict([]byte(text), &object.Object))
		kind := object.GroupVersionKind()
		resource := kind.GroupVersion().WithResource(strings.ReplaceAll(strings.ToLower(kind.Kind)+"s", "ys", "ies"))
		_, err := all.Resource(resource).Create(ctx, object, v1.CreateOptions{})
		require.NoError(t, err, text)
	}
	testserver.Eventually(t, "the kind of objects exists", func() bool {
		_, err := all.Resource(widgets).Namespace(namespace).List(ctx, v1.ListOptions{})
		return err == nil
	})
	for user, annotations := range map[string]map[string]string{admin: {annotation: "x"}, controller: nil} {
		testserver.Eventually(t, "the policies apply", func() bool {
			probe := object("v1", "ConfigMap", "probe", annotations)
			_, err := as(t, addr, user).Resource(configMaps).Namespace(namespace).Create(ctx, probe,
				v1.CreateOptions{DryRun: []string{v1.DryRunAll}})
			return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
		})
	}
}

// as returns a client without a token.
func as(t *testing.T, addr, user string) *dynamic.DynamicClient {
	t.Helper()
	c, err := dynamic.NewForConfig(config(addr, user))
	require.NoError(t, err)
	return c
}

func object(version, kind, name string, annotations map[string]string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind}}
	o.SetName(name)
	o.SetAnnotations(annotations)
	return o
}

// elect returns the lock of a candidate that leads. It is not renewed, and ends after ten minutes.
func elect(ctx context.Context, locks *lease.Client, resource fencing.Resource, identity string) (*kubelock.Lock,
	error) {
	lock, err := kubelock.New(locks, resource, identity)
	if err != nil {
		return nil, err
	}
	return lock, lock.Create(ctx, resourcelock.LeaderElectionRecord{HolderIdentity: identity, LeaseDurationSeconds: 600})
}

// leader is a controller that leads.
type leader struct {
	*dynamic.DynamicClient
	lock *kubelock.Lock
}

func newLeader(t *testing.T, addr string, resource fencing.Resource) leader {
	t.Helper()
	locks, err := client.Dial(testserver.Context(t), []string{service.Get(t).Addr})
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	var lock *kubelock.Lock
	testserver.Eventually(t, "a leader is elected", func() bool {
		lock, err = elect(testserver.Context(t), locks, resource, fmt.Sprint("leader of ", resource))
		return err == nil
	})
	c := config(addr, controller)
	c.Wrap(lock.Transport)
	writer, err := dynamic.NewForConfig(c)
	require.NoError(t, err)
	return leader{writer, lock}
}

// annotation is where the leader writes its token.
func (l leader) annotation() string {
	return kubegate.AnnotationPrefix + string(l.lock.Lease().Resource())
}
