package objectgate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// Verify asks the store whether it honours conditions, with writes to an object
// of its own, whose key is given. Some stores accept the headers and take no
// notice of them; a gate on such a store refuses nothing.
func (g *Gate) Verify(ctx context.Context, key string) error {
	now, err := g.head(ctx, key)
	if err != nil {
		return err
	}
	first := &swap{base: now, nonce: newNonce()}
	if err := g.put(ctx, key, first); err != nil {
		return fmt.Errorf("verify the store with object %s: %w", key, err)
	}
	// The same condition again must fail, since the object has changed.
	if err := refuses(g.put(ctx, key, &swap{base: now, nonce: newNonce()})); err != nil {
		return err
	}
	return refuses(g.put(ctx, key, &swap{base: &object{}, nonce: newNonce()}))
}

func refuses(err error) error {
	switch status := statusOf(err); {
	case err == nil:
		return errors.New("the store takes no notice of If-Match or If-None-Match; no gate can be built on it")
	case status == http.StatusPreconditionFailed || status == http.StatusNotFound:
		return nil
	}
	return fmt.Errorf("verify that the store honours conditions: %w", err)
}
