package audit

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/golden"
)

// TestGoldenLine checks that a line has the fields of version 1.
func TestGoldenLine(t *testing.T) {
	r := Record{
		Time:      time.Date(2026, 11, 16, 9, 30, 0, 123456000, time.UTC),
		Member:    "a",
		Event:     Grant,
		User:      "alice",
		Address:   "192.0.2.7:51324",
		Via:       "192.0.2.1:7420",
		Method:    "/leased.v1.LeaseService/Acquire",
		Holder:    "worker-1",
		Resources: []string{"jobs/7"},
		Token:     12,
		Mode:      "correctness",
		Subject:   "jobs/*",
		Code:      "forbidden",
		Detail:    "text",
		Lost:      3,
	}
	line, err := json.Marshal(r)
	require.NoError(t, err)
	var again Record
	require.NoError(t, json.Unmarshal([]byte(golden.Text(t, "line.json", string(line)+"\n")), &again))
	require.Equal(t, r, again)
}
