package kubelock_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leased-project/leased/integrations/kubelock"
	"github.com/leased-project/leased/lease"
)

// The blocks of the section on client-go in docs/MIGRATING.md are part of the functions here, word for word.
func TestGuideIsCode(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "MIGRATING.md"))
	require.NoError(t, err)
	source, err := os.ReadFile("guide_test.go")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "\n## client-go leader election\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := strings.Split(section, "```go\n")[1:]
	require.Len(t, blocks, len(guides))
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		require.Contains(t, strings.ReplaceAll(string(source), "\n\t", "\n"), "\n"+block)
	}
}

var guides = []any{before, after}

func before(ctx context.Context, config *rest.Config, identity string, stop func(),
	reconcile func(*kubernetes.Clientset) func(context.Context)) error {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "widgets"},
			Client:     clients.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: reconcile(clients), OnStoppedLeading: stop},
	})
	return nil
}

func after(ctx context.Context, config *rest.Config, identity string, stop func(),
	reconcile func(*kubernetes.Clientset) func(context.Context), locks *lease.Client) error {
	lock, err := kubelock.New(locks, "widgets", identity)
	if err != nil {
		return err
	}
	config.ContentType = "application/json"
	config.Wrap(lock.Transport)
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock:          lock,
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: reconcile(clients), OnStoppedLeading: stop},
	})
	return nil
}
