package connectgate_test

import (
	"testing"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/servicetest"
	"github.com/leased-project/leased/storagegate/callgate"
	"github.com/leased-project/leased/storagegate/connectgate"
)

func TestSignedTokens(t *testing.T) {
	s := serveGuarded(t, fencing.Rule{}, callgate.WithVerifier(servicetest.NewVerifier(t)))
	servicetest.RequireSigned(t, s.store, s.Counts, func(text, value string) error {
		ctx := t.Context()
		if text != "" {
			ctx = connectgate.WithSignedToken(ctx, text)
		}
		_, err := s.call(ctx, procPut, servicetest.Message(servicetest.SignedResource, value))
		return err
	})
}
