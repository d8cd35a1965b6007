package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/leased-project/leased/integrations/kubelock"
	"github.com/leased-project/leased/internal/testserver"
)

// What the policy admits, for an object with token 34.
func TestPolicy(t *testing.T) {
	all := as(t, start(t), admin).Resource(configMaps).Namespace(namespace)
	for _, c := range []struct {
		name, patch, want string
	}{
		{"newer", `{"metadata":{"annotations":{"fencing-token/widgets":"35"}}}`, ""},
		{"equal", `{"metadata":{"annotations":{"fencing-token/widgets":"34"}},"data":{"a":"b"}}`, ""},
		{"more digits", `{"metadata":{"annotations":{"fencing-token/widgets":"100"}}}`, ""},
		{"older", `{"metadata":{"annotations":{"fencing-token/widgets":"33"}}}`,
			"fencing-token/widgets of the object is 34, the write has 33"},
		{"fewer digits", `{"metadata":{"annotations":{"fencing-token/widgets":"9"}}}`, "the write has 9"},
		{"removed", `{"metadata":{"annotations":{"fencing-token/widgets":null}}}`, "must not remove"},
		{"all removed", `{"metadata":{"annotations":null}}`, "must not remove"},
		{"no number", `{"metadata":{"annotations":{"fencing-token/widgets":"x"}}}`, "must be a token"},
		{"empty", `{"metadata":{"annotations":{"fencing-token/widgets":""}}}`, "must be a token"},
		{"leading zero", `{"metadata":{"annotations":{"fencing-token/widgets":"035"}}}`, "must be a token"},
		{"two lines", `{"metadata":{"annotations":{"fencing-token/widgets":"35\n1"}}}`, "must be a token"},
		{"too large", `{"metadata":{"annotations":{"fencing-token/widgets":"9007199254740992"}}}`, "must be a token"},
		{"jump", `{"metadata":{"annotations":{"fencing-token/widgets":"1099511627811"}}}`, "no lock service has granted it"},
		{"largest jump", `{"metadata":{"annotations":{"fencing-token/widgets":"1099511627810"}}}`, ""},
		{"another lock", `{"metadata":{"annotations":{"fencing-token/gadgets":"1"}}}`, ""},
		{"another annotation", `{"metadata":{"annotations":{"a":"b"}}}`, ""},
		{"a writer without a token", `{"data":{"a":"b"}}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := testserver.Context(t)
			made, err := all.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap",
				"metadata": map[string]any{"generateName": "policy-", "annotations": map[string]any{annotation: "34"}}}},
				v1.CreateOptions{})
			require.NoError(t, err)
			_, err = all.Patch(ctx, made.GetName(), types.MergePatchType, []byte(c.patch), v1.PatchOptions{})
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
			after, err := all.Get(ctx, made.GetName(), v1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, made.GetResourceVersion(), after.GetResourceVersion())
		})
	}
}

// The first token of an object is bounded, too.
func TestPolicyOfCreate(t *testing.T) {
	all := as(t, start(t), admin).Resource(configMaps).Namespace(namespace)
	for token, want := range map[string]string{"1099511627777": "no lock service has granted it", "x": "must be a token"} {
		_, err := all.Create(testserver.Context(t), object("v1", "ConfigMap", "absurd", map[string]string{annotation: token}),
			v1.CreateOptions{})
		require.ErrorContains(t, err, want)
	}
}

// An update without a resourceVersion replaces whatever is there, except for a newer token.
func TestPolicyOfUpdate(t *testing.T) {
	ctx, all := testserver.Context(t), as(t, start(t), admin).Resource(configMaps).Namespace(namespace)
	put := func(token string) *unstructured.Unstructured {
		return object("v1", "ConfigMap", "updated", map[string]string{annotation: token})
	}
	_, err := all.Create(ctx, put("34"), v1.CreateOptions{})
	require.NoError(t, err)
	_, err = all.Update(ctx, put("33"), v1.UpdateOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	_, err = all.Update(ctx, object("v1", "ConfigMap", "updated", nil), v1.UpdateOptions{})
	require.ErrorContains(t, err, "must not remove")
	_, err = all.Update(ctx, put("35"), v1.UpdateOptions{})
	require.NoError(t, err)
}

// The status of a Deployment contains its annotations, so it cannot lower the mark.
func TestStatusDoesNotLowerTheMark(t *testing.T) {
	addr := start(t)
	ctx, all := testserver.Context(t), as(t, addr, admin).Resource(deployments).Namespace(namespace)
	deployment := object("apps/v1", "Deployment", "status", map[string]string{annotation: "34"})
	labels := map[string]any{"app": "x"}
	deployment.Object["spec"] = map[string]any{"selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "x", "image": "x"}}}}}
	_, err := all.Create(ctx, deployment, v1.CreateOptions{})
	require.NoError(t, err)
	lower := []byte(`{"metadata":{"annotations":{"fencing-token/widgets":"33"}}}`)
	_, err = all.Patch(ctx, "status", types.MergePatchType, lower, v1.PatchOptions{}, "status")
	require.ErrorContains(t, err, "the write has 33")
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}

// A mark of the namespace refuses objects that a former leader creates late.
func TestMarkOfANamespace(t *testing.T) {
	addr := start(t)
	ctx, all := testserver.Context(t), as(t, addr, admin)
	_, err := all.Resource(namespaces).Create(ctx, object("v1", "Namespace", "marked", nil), v1.CreateOptions{})
	require.NoError(t, err)
	former := newLeader(t, addr, "namespace")
	require.NoError(t, former.lock.Lease().Release(ctx))
	current := newLeader(t, addr, "namespace")
	_, err = current.Resource(namespaces).Patch(ctx, "marked", types.MergePatchType, []byte(`{}`), v1.PatchOptions{})
	require.NoError(t, err)
	late := object("v1", "ConfigMap", "late", map[string]string{former.annotation(): former.lock.Lease().Token().String()})
	testserver.Eventually(t, "the API server has seen the mark", func() bool {
		_, err := all.Resource(configMaps).Namespace("marked").Create(ctx, late,
			v1.CreateOptions{DryRun: []string{v1.DryRunAll}})
		return apierrors.IsForbidden(err)
	})
	_, err = current.Resource(configMaps).Namespace("marked").Create(ctx, object("v1", "ConfigMap", "late", nil),
		v1.CreateOptions{})
	require.NoError(t, err)
}

// The second policy requires tokens from the controller.
func TestWriterNeedsTokens(t *testing.T) {
	addr := start(t)
	ctx := testserver.Context(t)
	bare := as(t, addr, controller).Resource(configMaps).Namespace(namespace)
	_, err := bare.Create(ctx, object("v1", "ConfigMap", "bare", nil), v1.CreateOptions{})
	require.ErrorContains(t, err, "must write with a token")
	l := newLeader(t, addr, "writer")
	_, err = l.Resource(configMaps).Namespace(namespace).Create(ctx, object("v1", "ConfigMap", "bare", nil),
		v1.CreateOptions{})
	require.NoError(t, err)
	require.ErrorContains(t, bare.Delete(ctx, "bare", v1.DeleteOptions{}), "with a resourceVersion")
	require.ErrorContains(t, bare.DeleteCollection(ctx, v1.DeleteOptions{}, v1.ListOptions{}), "with a resourceVersion")
	require.NoError(t, l.Resource(configMaps).Namespace(namespace).Delete(ctx, "bare", v1.DeleteOptions{}))
}

// A typed client sends protobuf unless it is told otherwise.
func TestTypedClient(t *testing.T) {
	addr := start(t)
	ctx, l := testserver.Context(t), newLeader(t, addr, "typed")
	for media, want := range map[string]error{"application/vnd.kubernetes.protobuf": kubelock.ErrNoToken,
		"application/json": nil} {
		c := config(addr, controller)
		c.ContentType = media
		c.Wrap(l.lock.Transport)
		typed, err := clientset.NewForConfig(c)
		require.NoError(t, err)
		made, err := typed.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: v1.ObjectMeta{
			GenerateName: "typed-"}}, v1.CreateOptions{})
		require.ErrorIs(t, err, want)
		if want == nil {
			require.Equal(t, l.lock.Lease().Token().String(), made.Annotations[l.annotation()])
		}
	}
}
