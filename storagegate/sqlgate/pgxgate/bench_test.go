package pgxgate_test

import "github.com/leased-project/leased/internal/testserver"

var durable = testserver.Shared{Start: testserver.StartDurablePostgres}
