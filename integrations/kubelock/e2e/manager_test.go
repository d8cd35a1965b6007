package e2e_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/integrations/kubelock"
	"github.com/leased-project/leased/internal/testserver"
)

// A manager of controller-runtime writes with the token of its lease.
func TestManager(t *testing.T) {
	addr := start(t)
	ctx, stop := context.WithCancel(testserver.Context(t))
	defer stop()
	locks, err := client.Dial(ctx, []string{service.Get(t).Addr})
	require.NoError(t, err)
	defer locks.Close(context.Background())
	lock, err := kubelock.New(locks, "manager", "pod-1")
	require.NoError(t, err)
	c := config(addr, controller)
	c.Wrap(lock.Transport)
	m, err := manager.New(c, manager.Options{LeaderElection: true, LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel: true, Metrics: metrics.Options{BindAddress: "0"}})
	require.NoError(t, err)
	made := &corev1.ConfigMap{ObjectMeta: v1.ObjectMeta{Namespace: namespace, GenerateName: "manager-"}}
	created, ended := make(chan error, 1), make(chan error, 1)
	require.NoError(t, m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		created <- m.GetClient().Create(ctx, made)
		<-ctx.Done()
		return nil
	})))
	go func() { ended <- m.Start(ctx) }()
	require.NoError(t, testserver.Receive(t, created))
	require.Equal(t, lock.Lease().Token().String(), made.Annotations["fencing-token/manager"])
	stop()
	require.NoError(t, testserver.Receive(t, ended))
	status, err := locks.Inspect(testserver.Context(t), "manager")
	require.NoError(t, err)
	require.Empty(t, status.Holders)
}
