package proxy_test

import (
	"testing"

	"github.com/leased-project/leased/storagegate/httpgate/proxy"
	"github.com/leased-project/leased/storagegate/internal/servicetest"
)

func TestSignedTokens(t *testing.T) {
	store := &servicetest.Store{}
	f := newFixture(t, store, func(c *proxy.Config) { c.Verifier = servicetest.NewVerifier(t) })
	servicetest.RequireSigned(t, store, f.proxy.Counts, f.WriteSigned)
}
