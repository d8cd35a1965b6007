package tfstate

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// lock takes the lease and records the lock in the index, which raises the mark before
// the run reads the state. The request can be repeated. It returns a *heldError if
// another run has the lock.
func (h *Handler) lock(ctx context.Context, resource fencing.Resource, info LockInfo) (lock, error) {
	l, err := h.locks.TryAcquire(ctx, resource, lease.WithMetadata(info.metadata()))
	by := lock{Info: info}
	switch {
	case errors.Is(err, lease.ErrHeld):
		holder, err := h.holder(ctx, resource)
		if err != nil {
			return lock{}, err
		}
		if other := infoOf(holder); other.ID != info.ID {
			return lock{}, &heldError{by: other}
		}
		by.Token = holder.Token
	case err != nil:
		return lock{}, err
	default:
		by.Token = l.Token()
		h.keep(resource, l)
		if _, err := h.holder(ctx, resource); err != nil { // unlock needs the right to read: a run must not begin without it
			return by, h.undo(ctx, resource, by, err)
		}
	}
	err = h.update(ctx, resource, by.Token, func(i *index) error {
		i.Lock = &by
		return nil
	})
	if err != nil {
		err = h.undo(ctx, resource, by, err)
	}
	return by, err
}

// undo releases the lease of a request that failed to lock, and returns the failure. If the index has the lock, it
// returns nil: the storage has done what it reported as failed, or the client has repeated the request at another
// server while this one was paused.
func (h *Handler) undo(ctx context.Context, resource fencing.Resource, by lock, failed error) error {
	ctx, cancel := afterRequest(ctx)
	defer cancel()
	i, err := h.load(ctx, resource)
	if err == nil && i.Lock != nil && i.Lock.Token == by.Token && i.Lock.Info.ID == by.Info.ID {
		return nil
	}
	_, err = h.release(ctx, resource, by.Token)
	return errors.Join(failed, err)
}

// afterRequest returns a context for what must be done after a request, which may have been canceled.
func afterRequest(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), requestLimit)
}

// unlock removes the lock from the index, so that its later writes are refused, and ends
// its lease. force-unlock in another process does the same; old releases of Terraform then
// give no ID. An unlocked state stays unlocked.
func (h *Handler) unlock(ctx context.Context, resource fencing.Resource, id string) error {
	holder, err := h.holder(ctx, resource)
	if err != nil {
		return err
	}
	held := holder.Token != fencing.None
	if other := infoOf(holder); held && id != "" && other.ID != id {
		return &heldError{by: other}
	}
	i, err := h.load(ctx, resource)
	if err != nil {
		return err
	}
	token := holder.Token
	if i.Lock != nil && (id == "" || i.Lock.Info.ID == id) {
		token = cmp.Or(token, i.Lock.Token)
		err = h.update(ctx, resource, i.Lock.Token, func(now *index) error {
			if now.Lock != nil && now.Lock.Info.ID == i.Lock.Info.ID {
				now.Lock = nil
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if ours, err := h.release(ctx, resource, token); ours || !held {
		return err
	}
	if err := h.locks.Break(ctx, resource, holder.Token); !errors.Is(err, lease.ErrNotHeld) {
		return err
	}
	return nil
}

// locked runs work under a new lock, for requests that carry none.
func (h *Handler) locked(ctx context.Context, resource fencing.Resource, who, operation string,
	work func(by lock) error) error {
	by, err := h.lock(ctx, resource, LockInfo{ID: rand.Text(), Operation: operation, Who: who,
		Created: time.Now().UTC().Format(time.RFC3339)})
	if errors.As(err, new(*heldError)) {
		err = fmt.Errorf("%s: %w; unlock the state first: DELETE and ?restore take the lock themselves", operation, err)
	}
	if err != nil {
		return err
	}
	err = work(by)
	ctx, cancel := afterRequest(ctx)
	defer cancel()
	return errors.Join(err, h.unlock(ctx, resource, by.Info.ID))
}

// holder returns the holder of the lock, or a Party without a token.
func (h *Handler) holder(ctx context.Context, resource fencing.Resource) (lease.Party, error) {
	status, err := h.locks.Inspect(ctx, resource)
	if err != nil || len(status.Holders) == 0 {
		return lease.Party{}, err
	}
	holder := status.Holders[0]
	if holder.Token == fencing.None {
		return lease.Party{}, fmt.Errorf("%w: the service hides the token of the holder of %q: give the user of this gate "+
			"the right to break its lock", lease.ErrForbidden, string(resource))
	}
	return holder, nil
}

// keep remembers a lease until it is released. It is renewed meanwhile.
func (h *Handler) keep(resource fencing.Resource, l *lease.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leases[resource] = l
}

// release releases the lease with this token, if this process has it, and reports whether it
// does. An ID does not name a lease: a client may use one ID for several states, or again.
func (h *Handler) release(ctx context.Context, resource fencing.Resource, token fencing.Token) (ours bool, err error) {
	h.mu.Lock()
	l := h.leases[resource]
	if ours = l != nil && l.Token() == token; ours {
		delete(h.leases, resource)
	}
	h.mu.Unlock()
	if !ours {
		return false, nil
	}
	return true, l.Release(ctx)
}

// LockInfo is what Terraform and OpenTofu say about a lock.
type LockInfo struct {
	ID        string
	Operation string
	Info      string
	Who       string
	Version   string
	Created   string
	Path      string
}

// maxField is the maximum length of a field in bytes, so that all fields fit into the metadata of a lease.
const maxField = 500

// fields returns pointers to the fields by their names in the metadata of a lease.
func (i *LockInfo) fields() map[string]*string {
	return map[string]*string{"id": &i.ID, "operation": &i.Operation, "info": &i.Info, "who": &i.Who,
		"version": &i.Version, "created": &i.Created, "path": &i.Path}
}

// metadata returns the metadata of the lease.
func (i LockInfo) metadata() map[string]string {
	metadata := map[string]string{}
	for key, field := range i.fields() {
		if *field != "" {
			metadata[key] = strings.ToValidUTF8((*field)[:min(len(*field), maxField)], "")
		}
	}
	return metadata
}

// infoOf returns the LockInfo of the holder of a lease. A holder that is not a run of
// Terraform has no ID.
func infoOf(holder lease.Party) LockInfo {
	var info LockInfo
	for key, field := range info.fields() {
		*field = holder.Metadata[key]
	}
	if info.Who == "" {
		info.Who = holder.Holder
	}
	return info
}
