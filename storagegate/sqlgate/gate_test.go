package sqlgate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/gatetest"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

var dialects = []sqlgate.Dialect{sqlgate.Postgres, sqlgate.MySQL, sqlgate.SQLite}

// subject is a handle that can also crash.
type subject struct {
	gatetest.Pauser
	storagegate.Resetter
	storage storage
}

func (s subject) Crash(t testing.TB, resource fencing.Resource, token fencing.Token, value string) {
	s.storage.crash(t, resource, token, value)
}

func TestGate(t *testing.T) {
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			s := newSuiteStorage(t, dialect)
			gatetest.Run(t, func(t *testing.T) gatetest.Opener {
				s.empty(t)
				return func(t testing.TB, rule fencing.Rule) gatetest.Subject {
					db := s.handle(t)
					gate, err := sqlgate.New(db, dialect, rule)
					require.NoError(t, err)
					return subject{gatetest.Adapt(gate, s.put, s.get(db)), gate, s.storage}
				}
			})
		})
	}
}
