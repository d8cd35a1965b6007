package kubelock_test

import (
	"context"
	"log"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/integrations/kubelock"
)

// A controller whose writes are refused when another one has taken over.
func Example() {
	ctx := context.Background()
	locks, err := client.Dial(ctx, []string{"127.0.0.1:7420"})
	if err != nil {
		log.Fatal(err)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	lock, err := kubelock.New(locks, "widgets", os.Getenv("POD_NAME")+"_"+os.Getenv("POD_UID"))
	if err != nil {
		log.Fatal(err)
	}
	config.ContentType = "application/json"
	config.Wrap(lock.Transport)
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, ReleaseOnCancel: true,
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				_, err := clients.CoreV1().ConfigMaps("shop").Patch(ctx, "prices", types.MergePatchType,
					[]byte(`{"data":{"tea":"3"}}`), metav1.PatchOptions{})
				if err != nil {
					log.Print(err)
				}
			},
			OnStoppedLeading: func() { os.Exit(1) },
		},
	})
}
