package kubegate_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/kubegate"
)

// The policies themselves are tested with an API server, in integrations/kubelock/e2e.
func TestPolicyIsComplete(t *testing.T) {
	text, err := kubegate.Policy(fencing.Rule{})
	require.NoError(t, err)
	require.Contains(t, text, "<= 1099511627776)")
	require.Contains(t, text, `startsWith("`+kubegate.AnnotationPrefix+`")`)
	require.Equal(t, 2, strings.Count(text, "\nkind: "))
	text, err = kubegate.Policy(fencing.Rule{MaxJump: 5}, "system:serviceaccount:shop:widgets")
	require.NoError(t, err)
	require.Contains(t, text, "<= 5)")
	require.Contains(t, text, `request.userInfo.username == "system:serviceaccount:shop:widgets"`)
	require.Equal(t, 4, strings.Count(text, "\nkind: "))
	require.NotContains(t, text, "MAX_JUMP")
	require.NotContains(t, text, "WRITER")
}

// A policy for one controller must not replace that for another.
func TestEveryWriterHasAPolicy(t *testing.T) {
	text, err := kubegate.Policy(fencing.Rule{}, "system:serviceaccount:shop:eu-widgets",
		"system:serviceaccount:shop-eu:widgets", "Ann@example.org")
	require.NoError(t, err)
	require.Equal(t, 8, strings.Count(text, "\nkind: "))
	for _, name := range []string{"system.serviceaccount.shop.eu-widgets", "system.serviceaccount.shop-eu.widgets",
		"ann-example.org"} {
		require.Equal(t, 3, strings.Count(text, "ame: fencing-token-writer-"+name+"\n"), name)
	}
}

func TestPolicyRefusesBadInput(t *testing.T) {
	_, err := kubegate.Policy(fencing.Rule{MaxJump: fencing.MaxToken + 1})
	require.ErrorIs(t, err, fencing.ErrInvalidToken)
	for _, user := range []string{`a"b`, "a\nb", "a b", "a'", ""} {
		_, err := kubegate.Policy(fencing.Rule{}, user)
		require.ErrorContains(t, err, "is not the name of a user")
	}
}

func TestAnnotation(t *testing.T) {
	name, err := kubegate.Annotation("shop.widgets_1-a")
	require.NoError(t, err)
	require.Equal(t, "fencing-token/shop.widgets_1-a", name)
	for _, lock := range []fencing.Resource{"", "a/b", "-a", "a-", "a b", "ä", fencing.Resource(strings.Repeat("a", 64))} {
		_, err := kubegate.Annotation(lock)
		require.ErrorIs(t, err, fencing.ErrInvalidResource, string(lock))
	}
}
