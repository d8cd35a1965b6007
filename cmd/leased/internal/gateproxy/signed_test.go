package gateproxy_test

import (
	"testing"

	"github.com/leased-project/leased/cmd/leased/internal/gateproxy"
	"github.com/leased-project/leased/internal/servicetest"
)

func TestSignedTokens(t *testing.T) {
	store := &servicetest.Store{}
	f := newFixture(t, store, func(c *gateproxy.Config) { c.Verifier = servicetest.NewVerifier(t) })
	servicetest.RequireSigned(t, store, f.proxy.Counts, f.WriteSigned)
}
