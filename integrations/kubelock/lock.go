package kubelock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate/kubegate"
)

// identityKey is the metadata of a lease with the identity of the leader.
const identityKey = "identity"

// Lock elects one leader with client-go's leaderelection or controller-runtime's manager.
// The elector renews the lease; LeaseDuration is its TTL. All methods may be called
// concurrently.
//
// A Lock leads for one term at most, because work that began in one term must not
// write with the token of the next. To run again after a loss, make a new Lock and
// new clients.
type Lock struct {
	locks      *lease.Client
	resource   fencing.Resource
	annotation string
	identity   string
	options    []lease.AcquireOption

	mu   sync.Mutex
	term *lease.Lease // nil until this candidate is elected
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns the lock of one candidate. The resource names the lock and the annotation
// of the objects, fencing-token/RESOURCE. The identity must differ from those of the
// other candidates, and is what they see of a leader. The options apply to the acquire.
func New(locks *lease.Client, resource fencing.Resource, identity string,
	options ...lease.AcquireOption) (*Lock, error) {
	annotation, err := kubegate.Annotation(resource)
	if err != nil {
		return nil, err
	}
	if identity == "" {
		return nil, errors.New("the identity is empty; use the name of the pod and a random part")
	}
	return &Lock{locks: locks, resource: resource, annotation: annotation, identity: identity, options: options}, nil
}

// Lease returns the lease of the term, for gates of other storages, or nil before this
// candidate is elected.
func (l *Lock) Lease() *lease.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term
}

// Get returns who leads, or a NotFound error if nobody does.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record := &resourcelock.LeaderElectionRecord{HolderIdentity: l.identity}
	if term := l.Lease(); term != nil {
		if err := term.Err(); err != nil {
			return nil, nil, l.over(err)
		}
	} else {
		status, err := l.locks.Inspect(ctx, l.resource)
		if err != nil {
			return nil, nil, err
		}
		if len(status.Holders) == 0 {
			return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, string(l.resource))
		}
		holder := status.Holders[0]
		record.HolderIdentity = holder.Metadata[identityKey]
		if record.HolderIdentity == "" || record.HolderIdentity == l.identity {
			record.HolderIdentity = fmt.Sprintf("%s, since %v", holder.Holder, holder.Since) // not this process
		}
		record.AcquireTime = metav1.NewTime(holder.Since)
		// The elector counts from the last change. The service says that the lease is valid now.
		record.RenewTime = metav1.Now()
	}
	raw, err := json.Marshal(record)
	return record, raw, err
}

// Create acquires the lease, or returns lease.ErrHeld.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

// Update acquires or renews the lease, or releases it if the record has no holder.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	term := l.Lease()
	switch {
	case term != nil && record.HolderIdentity == "":
		return term.Release(ctx)
	case term != nil:
		if err := term.Renew(ctx); term.Err() == nil {
			return err
		}
		return l.over(term.Err())
	case record.HolderIdentity == "":
		return nil
	}
	options := append(slices.Clone(l.options), lease.WithoutRenewal(),
		lease.WithTTL(time.Duration(record.LeaseDurationSeconds)*time.Second),
		lease.WithMetadata(map[string]string{identityKey: l.identity}))
	term, err := l.locks.TryAcquire(ctx, l.resource, options...)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term = term
	return nil
}

// over says that the term has ended.
func (l *Lock) over(err error) error {
	return fmt.Errorf("lead %q: %w; a lock leads for one term, make a new one with new clients", string(l.resource), err)
}

// RecordEvent does nothing: the service has the history of the lock.
func (l *Lock) RecordEvent(string) {}

// Identity returns the identity of this candidate.
func (l *Lock) Identity() string { return l.identity }

// Describe returns the name of the lock.
func (l *Lock) Describe() string { return "leased " + string(l.resource) }
