package objectgate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/leased-project/leased/fencing"
)

// verifyTimeout limits Verify: a store whose conditions always fail looks like one whose
// object others keep changing.
const verifyTimeout = 30 * time.Second

// Verify checks that the store enforces conditions, with writes to the object of a
// resource of its own. Some stores accept the headers and ignore them; a gate on such a
// store refuses nothing. Any number of processes can verify with the same resource.
func (g *Gate) Verify(ctx context.Context, resource fencing.Resource) error {
	ctx, cancel := context.WithTimeoutCause(ctx, verifyTimeout,
		fmt.Errorf("the store has refused all writes for %v, or others kept changing the object", verifyTimeout))
	defer cancel()
	err := g.try(ctx, resource, func(key string, now *object) error {
		if err := g.commit(ctx, key, &swap{base: now, nonce: newNonce()}); err != nil {
			return err
		}
		// The same condition must fail now, because the object has changed.
		if err := refuses(g.put(ctx, key, &swap{base: now, nonce: newNonce()})); err != nil {
			return err
		}
		return refuses(g.put(ctx, key, &swap{base: &object{}, nonce: newNonce()}))
	})
	if err != nil {
		return fmt.Errorf("verify the store with object %s: %w", g.key(resource), err)
	}
	return nil
}

func refuses(err error) error {
	switch statusOf(err) {
	case http.StatusPreconditionFailed, http.StatusConflict, http.StatusNotFound:
		return nil
	}
	if err == nil {
		return errors.New("the store ignores If-Match or If-None-Match and cannot be gated; use another store")
	}
	return err
}
