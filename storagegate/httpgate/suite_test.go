package httpgate_test

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/servicetest"
	"github.com/leased-project/leased/storagegate/callgate"
	"github.com/leased-project/leased/storagegate/gatetest"
	"github.com/leased-project/leased/storagegate/httpgate"
)

func TestGate(t *testing.T) {
	gatetest.Run(t, func(t *testing.T) gatetest.Opener {
		var shared gatetest.Subject
		return func(_ testing.TB, rule fencing.Rule) gatetest.Subject {
			if shared == nil {
				gate, err := httpgate.New(callgate.Memory(rule), servicetest.ResourceOf)
				require.NoError(t, err)
				server := httptest.NewServer(gate.Handler(&servicetest.Store{}))
				t.Cleanup(server.Close)
				shared = servicetest.HTTPClient{Gate: gate, URL: server.URL}
			}
			return shared
		}
	})
}
