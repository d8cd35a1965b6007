package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
)

// write is one way to change a widget, without a resourceVersion of the caller.
type write func(ctx context.Context, widgets dynamic.ResourceInterface, name, text string) error

func patch(kind types.PatchType, body string, subresources ...string) write {
	return func(ctx context.Context, widgets dynamic.ResourceInterface, name, text string) error {
		_, err := widgets.Patch(ctx, name, kind, fmt.Appendf(nil, body, text), v1.PatchOptions{}, subresources...)
		return err
	}
}

func filled(name, field, text string) *unstructured.Unstructured {
	widget := object("example.com/v1", "Widget", name, nil)
	widget.Object[field] = map[string]any{"text": text}
	return widget
}

// writes are all kinds of writes. Those that begin with the patch of the annotation can be stopped before
// their first or before their second request.
var writes = map[string]write{
	"update": func(ctx context.Context, widgets dynamic.ResourceInterface, name, text string) error {
		widget := filled(name, "spec", text)
		current, err := widgets.Get(ctx, name, v1.GetOptions{})
		if err != nil {
			return err
		}
		widget.SetResourceVersion(current.GetResourceVersion()) // required for custom resources
		_, err = widgets.Update(ctx, widget, v1.UpdateOptions{})
		return err
	},
	"merge patch": patch(types.MergePatchType, `{"spec":{"text":%q}}`),
	"JSON patch":  patch(types.JSONPatchType, `[{"op":"add","path":"/spec","value":{"text":%q}}]`),
	"apply": func(ctx context.Context, widgets dynamic.ResourceInterface, name, text string) error {
		_, err := widgets.Apply(ctx, name, filled(name, "spec", text), v1.ApplyOptions{FieldManager: "test", Force: true})
		return err
	},
	"status patch": patch(types.MergePatchType, `{"status":{"text":%q}}`, "status"),
	"status apply": func(ctx context.Context, widgets dynamic.ResourceInterface, name, text string) error {
		_, err := widgets.ApplyStatus(ctx, name, filled(name, "status", text),
			v1.ApplyOptions{FieldManager: "test", Force: true})
		return err
	},
	"scale": func(ctx context.Context, widgets dynamic.ResourceInterface, name, _ string) error {
		_, err := widgets.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), v1.PatchOptions{},
			"scale")
		return err
	},
	"delete": func(ctx context.Context, widgets dynamic.ResourceInterface, name, _ string) error {
		return widgets.Delete(ctx, name, v1.DeleteOptions{})
	},
}

// pause stops the process before its nth write.
type pause struct {
	base http.RoundTripper
	n    int
}

func (p *pause) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		if p.n--; p.n == 0 {
			testserver.AwaitResume()
		}
	}
	return p.base.RoundTrip(r)
}

// pausedLeader is a leader in a process of its own, which is stopped when it has built a request and
// not yet sent it. Its exit code is 3 if the policy refused the write, 4 if it was a conflict.
func pausedLeader() int {
	ctx := context.Background()
	locks, err := client.Dial(ctx, []string{os.Getenv("SERVICE")})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	name := os.Getenv("WIDGET")
	lock, err := elect(ctx, locks, fencing.Resource(name), "paused")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	n, _ := strconv.Atoi(os.Getenv("BEFORE"))
	c := config(os.Getenv("KUBERNETES"), controller)
	c.Wrap(func(base http.RoundTripper) http.RoundTripper { return &pause{base: base, n: n} })
	c.Wrap(lock.Transport)
	writer, err := dynamic.NewForConfig(c)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	err = writes[os.Getenv("WRITE")](ctx, writer.Resource(widgets).Namespace(namespace), name, "paused")
	fmt.Println(err)
	switch {
	case apierrors.IsForbidden(err):
		return 3
	case apierrors.IsConflict(err):
		return 4
	case err != nil:
		return 1
	}
	return 0
}

// A leader is stopped with a finished request in its hands, and another one writes the object. When
// the first one continues, its request is refused: the policy compares the token, or the object has another
// version than the one whose token was compared.
func TestPausedLeaderIsRefused(t *testing.T) {
	addr := start(t)
	for i, c := range []struct {
		write  string
		before int // the request that is late
		code   int
	}{
		{"update", 1, 4}, {"merge patch", 1, 3}, {"apply", 1, 3},
		{"JSON patch", 1, 3}, {"status patch", 1, 3}, {"status apply", 1, 3}, {"scale", 1, 3}, {"delete", 1, 3},
		{"JSON patch", 2, 4}, {"status patch", 2, 4}, {"status apply", 2, 4}, {"scale", 2, 4}, {"delete", 2, 4},
	} {
		t.Run(fmt.Sprintf("%s before request %d", c.write, c.before), func(t *testing.T) {
			t.Parallel()
			ctx, name := testserver.Context(t), fmt.Sprintf("paused-%d", i)
			all := as(t, addr, admin).Resource(widgets).Namespace(namespace)
			_, err := all.Create(ctx, filled(name, "spec", "first"), v1.CreateOptions{})
			require.NoError(t, err)
			resume := testserver.PauseChild(t, "WRITE="+c.write, "BEFORE="+strconv.Itoa(c.before), "WIDGET="+name,
				"KUBERNETES="+addr, "SERVICE="+service.Get(t).Addr)
			locks, err := client.Dial(ctx, []string{service.Get(t).Addr})
			require.NoError(t, err)
			defer locks.Close(ctx)
			status, err := locks.Inspect(ctx, fencing.Resource(name))
			require.NoError(t, err)
			require.Len(t, status.Holders, 1)
			require.NoError(t, locks.Break(ctx, fencing.Resource(name), status.Holders[0].Token))

			second := newLeader(t, addr, fencing.Resource(name))
			mine := second.Resource(widgets).Namespace(namespace)
			require.NoError(t, writes["merge patch"](ctx, mine, name, "second"))
			output, code := resume()
			require.Equal(t, c.code, code, output)
			if c.code == 3 {
				require.Contains(t, output, "stale fencing token")
			}
			widget, err := all.Get(ctx, name, v1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, map[string]any{"text": "second"}, widget.Object["spec"])
			require.Nil(t, widget.Object["status"])
			require.Equal(t, second.lock.Lease().Token().String(), widget.GetAnnotations()[second.annotation()])
		})
	}
}

// A leader that nobody replaced can do all of them, also twice.
func TestLeaderWrites(t *testing.T) {
	addr := start(t)
	l := newLeader(t, addr, "writes")
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, mine, name := testserver.Context(t), l.Resource(widgets).Namespace(namespace), fmt.Sprintf("writes-%x", name)
			_, err := mine.Create(ctx, filled(name, "spec", "first"), v1.CreateOptions{})
			require.NoError(t, err)
			require.NoError(t, write(ctx, mine, name, "second"))
			if widget, err := mine.Get(ctx, name, v1.GetOptions{}); !apierrors.IsNotFound(err) {
				require.NoError(t, err)
				require.Equal(t, l.lock.Lease().Token().String(), widget.GetAnnotations()[l.annotation()])
				require.NoError(t, write(ctx, mine, name, "third"))
			}
		})
	}
}
