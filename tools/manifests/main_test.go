package main

import (
	"strings"
	"testing"
)

// A field that does not exist, or exists twice, or has the wrong type or case is an error.
func TestDecode(t *testing.T) {
	const start = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec:\n"
	for name, c := range map[string]struct{ document, want string }{
		"valid":         {start + "  publishNotReadyAddresses: true\n", ""},
		"unknown field": {start + "  publishNotReady: true\n", `unknown field "spec.publishNotReady"`},
		"wrong case":    {start + "  publishnotreadyaddresses: true\n", "unknown field"},
		"given twice":   {start + "  clusterIP: None\n  clusterIP: None\n", "already set"},
		"wrong type":    {start + "  publishNotReadyAddresses: 3\n", "cannot unmarshal"},
		"unknown kind":  {"apiVersion: v1\nkind: Sevice\n", `unknown kind "Sevice"`},
		"old version":   {"apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\n", "unknown kind"},
	} {
		_, err := decode([]byte(c.document))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
