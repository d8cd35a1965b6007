package gatetest_test

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/gatetest"
)

// weakGate is a gate in memory that can lack one of its parts. The suite must
// detect each missing part.
type weakGate struct {
	storagegate.Monitor
	without string
	rule    fencing.Rule
	mu      *sync.Mutex
	marks   map[fencing.Resource]fencing.Token
	values  map[fencing.Resource]string
}

// pending is the transaction: the value that the write stores.
type pending struct{ value *string }

func (g *weakGate) Do(ctx context.Context, resource fencing.Resource, token fencing.Token,
	write func(*pending) error) error {
	if err := resource.Validate(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil && g.without != "context" {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	mark := g.marks[resource]
	err := g.rule.Admit(resource, mark, token)
	switch {
	case g.without == "equal" && err == nil && token == mark && token != fencing.None:
		err = &fencing.StaleError{Resource: resource, Token: token, Mark: mark}
	case g.without == "tokenless check" && token == fencing.None:
		err, token = nil, mark
	case g.without == "width" && token.Valid():
		err = g.rule.Admit(resource, mark%fencing.FloorStep, token%fencing.FloorStep)
		token = max(mark, token)
	case g.without == "check" && token.Valid(), g.without == "monotony" && token.Valid() && token+1 >= mark:
		err = nil
	}
	if err != nil {
		return g.Record(ctx, resource, token, err)
	}
	if g.without == "rollback" {
		g.marks[resource] = token
	}
	if g.without == "lock" {
		g.mu.Unlock()
	}
	var tx pending
	err = func() error {
		if g.without == "lock" {
			defer g.mu.Lock()
		}
		return write(&tx)
	}()
	if err == nil && g.without != "context" {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	g.marks[resource] = token
	if g.without == "lock" {
		g.marks[resource] = max(mark, token)
	}
	if tx.value != nil {
		g.values[resource] = *tx.value
	}
	if g.without == "counters" {
		return nil
	}
	return g.Record(ctx, resource, token, nil)
}

func (g *weakGate) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if token == fencing.None {
		return storagegate.RefuseTokenless(ctx, g, resource)
	}
	if g.without == "enter" {
		return nil
	}
	return g.Do(ctx, resource, token, func(*pending) error { return nil })
}

func (g *weakGate) Reset(_ context.Context, resource fencing.Resource, expected, to fencing.Token) error {
	if err := storagegate.ValidateReset(resource, expected, to); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := storagegate.CompareMark(resource, g.marks[resource], expected); err != nil && g.without != "comparison" {
		return err
	}
	g.marks[resource] = to
	return nil
}

func (g *weakGate) Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	if err := resource.Validate(); err != nil {
		return fencing.None, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.marks[resource], ctx.Err()
}

// crasher adds a crash between check and commit to the weak gate: it does not
// store what a real storage would roll back.
type crasher struct {
	gatetest.Pauser
	storagegate.Resetter
	gate *weakGate
}

func (c crasher) Crash(_ testing.TB, resource fencing.Resource, token fencing.Token, value string) {
	if c.gate.without == "atomicity" {
		c.gate.mu.Lock()
		defer c.gate.mu.Unlock()
		c.gate.values[resource] = value // the data is stored, the mark is not
	}
}

func suite(t *testing.T, without string) {
	gatetest.Run(t, func(*testing.T) gatetest.Opener {
		var mu sync.Mutex
		marks, values := map[fencing.Resource]fencing.Token{}, map[fencing.Resource]string{}
		return func(_ testing.TB, rule fencing.Rule) gatetest.Subject {
			if without == "bound" || without == "default bound" && rule.MaxJump == 0 {
				rule.MaxJump = fencing.Unbounded
			}
			gate := &weakGate{without: without, rule: rule, mu: &mu, marks: marks, values: values}
			put := func(_ context.Context, tx *pending, _ fencing.Resource, value string) error {
				tx.value = &value
				return nil
			}
			get := func(ctx context.Context, resource fencing.Resource) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				return values[resource], ctx.Err()
			}
			return crasher{gatetest.Adapt(gate, put, get), gate, gate}
		}
	})
}

const envWithout = "GATETEST_WITHOUT"

// TestSuite runs the suite with a complete gate. As a child of
// TestSuiteDetectsMissingParts it runs with a gate that lacks a part.
func TestSuite(t *testing.T) { suite(t, os.Getenv(envWithout)) }

func TestSuiteDetectsMissingParts(t *testing.T) {
	if os.Getenv(envWithout) != "" {
		return // this is the child
	}
	for without, failing := range map[string]string{
		"check":           "stale_after_newer",
		"width":           "tokens_that_differ_by_floor_steps",
		"monotony":        "two_successive_holders",
		"equal":           "equal_token_twice",
		"tokenless check": "without_a_token,_before_and_after_the_first_fence",
		"enter":           "enter_raises_the_mark_before_the_first_read",
		"bound":           "bound_on_the_jump",
		"default bound":   "bound_on_the_jump_by_default",
		"comparison":      "reset_of_an_absurd_mark",
		"lock":            "every_interleaving_of_two_holders",
		"rollback":        "a_failed_write_leaves_mark_and_data",
		"atomicity":       "crash_between_check_and_commit",
		"context":         "cancelled_context",
		"counters":        "counters_and_audit_hook",
	} {
		t.Run(without, func(t *testing.T) {
			child := exec.Command(os.Args[0], "-test.run=^TestSuite$/^"+failing+"$", "-test.v", "-rapid.nofailfile")
			child.Env = append(os.Environ(), envWithout+"="+without)
			output, err := child.CombinedOutput()
			require.Error(t, err, "a gate without %s passed the suite:\n%s", without, output)
			require.Contains(t, string(output), "--- FAIL: TestSuite/"+failing)
		})
	}
}
