package engine_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

func TestRequestValidate(t *testing.T) {
	good := engine.Request{Nonce: 1, Resources: []fencing.Resource{"a", "b"}, Holder: "me",
		Metadata: map[string]string{"k": "v"}}
	require.NoError(t, good.Validate())
	many := map[string]string{}
	for i := range engine.MaxMetadata + 1 {
		many[strings.Repeat("k", i+1)] = ""
	}
	tests := []struct {
		name  string
		spoil func(*engine.Request)
		says  string
	}{
		{"nonce", func(r *engine.Request) { r.Nonce = 0 }, "nonce"},
		{"no resource", func(r *engine.Request) { r.Resources = nil }, "1 to 64"},
		{"too many", func(r *engine.Request) { r.Resources = make([]fencing.Resource, 65) }, "1 to 64"},
		{"bad name", func(r *engine.Request) { r.Resources[0] = "" }, "invalid resource"},
		{"order", func(r *engine.Request) { r.Resources = []fencing.Resource{"b", "a"} }, "ascending"},
		{"twice", func(r *engine.Request) { r.Resources = []fencing.Resource{"a", "a"} }, "ascending"},
		{"kind", func(r *engine.Request) { r.Kind = 9 }, "kind(9)"},
		{"mode", func(r *engine.Request) { r.Mode = 9 }, "mode(9)"},
		{"permits without the kind", func(r *engine.Request) { r.Permits = 1 }, "permits (1)"},
		{"no permits", func(r *engine.Request) { r.Kind, r.Resources = engine.Permit, r.Resources[:1] }, "permits (0)"},
		{"too many permits", func(r *engine.Request) {
			r.Kind, r.Permits, r.Resources = engine.Permit, engine.MaxPermits+1, r.Resources[:1]
		}, "permits (10001)"},
		{"a set of permits", func(r *engine.Request) { r.Kind, r.Permits = engine.Permit, 2 }, "one resource"},
		{"no room for the slot", func(r *engine.Request) {
			r.Kind, r.Permits, r.Resources = engine.Permit, 2, []fencing.Resource{fencing.Resource(strings.Repeat("x", 510))}
		}, "slot"},
		{"long holder", func(r *engine.Request) { r.Holder = strings.Repeat("x", 257) }, "257 bytes"},
		{"unprintable holder", func(r *engine.Request) { r.Holder = "a\n" }, "printable"},
		{"too much metadata", func(r *engine.Request) { r.Metadata = many }, "33 entries"},
		{"empty key", func(r *engine.Request) { r.Metadata = map[string]string{"": "v"} }, "metadata key"},
		{"long key", func(r *engine.Request) {
			r.Metadata = map[string]string{strings.Repeat("k", 129): "v"}
		}, "metadata key"},
		{"large metadata", func(r *engine.Request) {
			r.Metadata = map[string]string{"k": strings.Repeat("v", 4096)}
		}, "4097 bytes"},
		{"metadata that is no text", func(r *engine.Request) { r.Metadata = map[string]string{"k": "\xff"} }, "UTF-8"},
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
	id := engine.NewSessionID()
	require.NotEqual(t, id, engine.NewSessionID())
	parsed, err := engine.ParseSessionID(id.String())
	require.NoError(t, err)
	require.Equal(t, id, parsed)
	var fromText engine.SessionID
	text, err := id.MarshalText()
	require.NoError(t, err)
	require.NoError(t, fromText.UnmarshalText(text))
	require.Equal(t, id, fromText)
	for _, bad := range []string{"", "ab", id.String() + "00", id.String()[:31], strings.Repeat("x", 32)} {
		_, err := engine.ParseSessionID(bad)
		require.ErrorIs(t, err, engine.ErrInvalid, "%q", bad)
	}
	require.Error(t, fromText.UnmarshalText([]byte("x")))
}
