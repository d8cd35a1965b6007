package lease_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

func TestRequestValidate(t *testing.T) {
	good := lease.Request{Nonce: 1, Resources: []fencing.Resource{"a", "b"}, Holder: "me", Metadata: map[string]string{"k": "v"}}
	require.NoError(t, good.Validate())
	many := map[string]string{}
	for i := range lease.MaxMetadata + 1 {
		many[strings.Repeat("k", i+1)] = ""
	}
	tests := []struct {
		name  string
		spoil func(*lease.Request)
		says  string
	}{
		{"nonce", func(r *lease.Request) { r.Nonce = 0 }, "nonce"},
		{"no resource", func(r *lease.Request) { r.Resources = nil }, "1 to 64"},
		{"too many", func(r *lease.Request) { r.Resources = make([]fencing.Resource, 65) }, "1 to 64"},
		{"bad name", func(r *lease.Request) { r.Resources[0] = "" }, "invalid resource"},
		{"order", func(r *lease.Request) { r.Resources = []fencing.Resource{"b", "a"} }, "ascending"},
		{"twice", func(r *lease.Request) { r.Resources = []fencing.Resource{"a", "a"} }, "ascending"},
		{"kind", func(r *lease.Request) { r.Kind = 9 }, "kind(9)"},
		{"mode", func(r *lease.Request) { r.Mode = 9 }, "mode(9)"},
		{"permits without the kind", func(r *lease.Request) { r.Permits = 1 }, "permits (1)"},
		{"no permits", func(r *lease.Request) { r.Kind, r.Resources = lease.Permit, r.Resources[:1] }, "permits (0)"},
		{"too many permits", func(r *lease.Request) {
			r.Kind, r.Permits, r.Resources = lease.Permit, lease.MaxPermits+1, r.Resources[:1]
		}, "permits (10001)"},
		{"a set of permits", func(r *lease.Request) { r.Kind, r.Permits = lease.Permit, 2 }, "one resource"},
		{"no room for the slot", func(r *lease.Request) {
			r.Kind, r.Permits, r.Resources = lease.Permit, 2, []fencing.Resource{fencing.Resource(strings.Repeat("x", 510))}
		}, "slot"},
		{"long holder", func(r *lease.Request) { r.Holder = strings.Repeat("x", 257) }, "257 bytes"},
		{"unprintable holder", func(r *lease.Request) { r.Holder = "a\n" }, "printable"},
		{"too much metadata", func(r *lease.Request) { r.Metadata = many }, "33 entries"},
		{"empty key", func(r *lease.Request) { r.Metadata = map[string]string{"": "v"} }, "metadata key"},
		{"long key", func(r *lease.Request) { r.Metadata = map[string]string{strings.Repeat("k", 129): "v"} }, "metadata key"},
		{"large metadata", func(r *lease.Request) { r.Metadata = map[string]string{"k": strings.Repeat("v", 4096)} }, "4097 bytes"},
		{"metadata that is no text", func(r *lease.Request) { r.Metadata = map[string]string{"k": "\xff"} }, "UTF-8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := good
			r.Resources = []fencing.Resource{"a", "b"}
			tt.spoil(&r)
			require.ErrorContains(t, r.Validate(), tt.says)
		})
	}
}

func TestSessionID(t *testing.T) {
	id := lease.NewSessionID()
	require.NotEqual(t, id, lease.NewSessionID())
	parsed, err := lease.ParseSessionID(id.String())
	require.NoError(t, err)
	require.Equal(t, id, parsed)
	var fromText lease.SessionID
	text, err := id.MarshalText()
	require.NoError(t, err)
	require.NoError(t, fromText.UnmarshalText(text))
	require.Equal(t, id, fromText)
	for _, bad := range []string{"", "ab", id.String() + "00", id.String()[:31], strings.Repeat("x", 32)} {
		_, err := lease.ParseSessionID(bad)
		require.ErrorIs(t, err, lease.ErrInvalid, "%q", bad)
	}
	require.Error(t, fromText.UnmarshalText([]byte("x")))
}
