package objectgate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// Verify checks that the store enforces conditions, with writes to an object of
// its own under the given key. Some stores accept the headers and ignore them; a
// gate on such a store refuses nothing.
func (g *Gate) Verify(ctx context.Context, key string) error {
	now, err := g.head(ctx, key)
	if err != nil {
		return err
	}
	first := &swap{base: now, nonce: newNonce()}
	if err := g.put(ctx, key, first); err != nil {
		return fmt.Errorf("verify the store with object %s: %w", key, err)
	}
	// The same condition must fail now, because the object has changed.
	if err := refuses(g.put(ctx, key, &swap{base: now, nonce: newNonce()})); err != nil {
		return err
	}
	return refuses(g.put(ctx, key, &swap{base: &object{}, nonce: newNonce()}))
}

func refuses(err error) error {
	switch status := statusOf(err); {
	case err == nil:
		return errors.New("the store ignores If-Match or If-None-Match and cannot be gated; use another store")
	case status == http.StatusPreconditionFailed || status == http.StatusNotFound:
		return nil
	}
	return fmt.Errorf("verify that the store enforces conditions: %w", err)
}
