package redisgate

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

// Gate guards the keys of one Redis server or Redis Cluster. Any number of
// processes can use gates on the same server.
//
// Do runs the commands that its write adds to the Tx in one script. If the write
// returns an error, nothing is sent.
type Gate struct {
	*storagegate.Base[*Tx]
	client  redis.UniversalClient
	rule    fencing.Rule
	maxJump string // the bound as the argument of a script
	anySlot bool
	refused error // returned by every call if the gate cannot be used
}

// Option configures a Gate.
type Option func(*Gate)

// AnySlot allows keys outside the slot of their mark. Use it for existing key
// names on a single server; a cluster refuses such writes.
func AnySlot() Option { return func(g *Gate) { g.anySlot = true } }

// New returns a Gate that applies rule to writes through client. It does not
// connect. If client is a *redis.Ring, every call returns ErrRing.
func New(client redis.UniversalClient, rule fencing.Rule, options ...Option) *Gate {
	g := &Gate{client: client, rule: rule, maxJump: rule.Bound().String()}
	if _, ok := client.(*redis.Ring); ok {
		g.refused = ErrRing
	}
	for _, option := range options {
		option(g)
	}
	g.Base = storagegate.NewBase(storagegate.Steps[*Tx]{Write: g.write, Lower: g.lower, Mark: g.mark})
	return g
}

func (g *Gate) write(
	ctx context.Context, resource fencing.Resource, token fencing.Token, write func(tx *Tx) error,
) error {
	tx := Tx{resource: resource, anySlot: g.anySlot}
	if write != nil {
		if err := write(&tx); err != nil {
			return err
		}
	}
	if tx.err != nil {
		return fmt.Errorf("write %q: %w", string(resource), tx.err)
	}
	script, args := writeScript, tx.args
	switch {
	case tx.plainSet:
		script, args = setScript, args[2:]
	case len(tx.keys) == 0:
		script = enterScript
	}
	_, err := g.run(ctx, script, resource, token, tx.keys, args)
	return err
}

// Run admits token and runs a script of the caller. The script gets keys and args
// as KEYS and ARGV. Run returns the result of the script.
func (g *Gate) Run(
	ctx context.Context, resource fencing.Resource, token fencing.Token, script *Script, keys []string, args ...any,
) (any, error) {
	if err := storagegate.Validate(resource, token); err != nil {
		return nil, err
	}
	for _, key := range keys {
		if err := checkKey(resource, key, g.anySlot); err != nil {
			return nil, fmt.Errorf("write %q: %w", string(resource), err)
		}
	}
	result, err := g.run(ctx, script, resource, token, keys, args)
	return result, g.Record(ctx, resource, token, err)
}

func (g *Gate) mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	if g.refused != nil {
		return fencing.None, g.refused
	}
	text, err := g.client.Get(ctx, MarkKey(resource)).Result()
	if errors.Is(err, redis.Nil) {
		return fencing.None, nil
	}
	if err != nil {
		return fencing.None, fmt.Errorf("read the mark of %q: %w", string(resource), err)
	}
	return fencing.ParseToken(text)
}

// run runs a script and returns its result, or the refusal.
func (g *Gate) run(
	ctx context.Context, script *Script, resource fencing.Resource, token fencing.Token, keys []string, args []any,
) (any, error) {
	if g.refused != nil {
		return nil, g.refused
	}
	words := append(make([]any, reserved, reserved+3+len(keys)+len(args)), MarkKey(resource))
	for _, key := range keys {
		words = append(words, key)
	}
	words = append(append(words, token.String(), g.maxJump), args...)
	reply, err := script.run(ctx, g.client, 1+len(keys), words)
	if err != nil {
		return nil, fmt.Errorf("write %q: %w", string(resource), err)
	}
	v := parseReply(reply)
	switch v.kind {
	case "stale":
		return nil, &fencing.StaleError{Resource: resource, Token: token, Mark: v.mark}
	case "jump":
		return nil, &fencing.JumpError{Resource: resource, Token: token, Mark: v.mark, MaxJump: g.rule.Bound()}
	}
	if v.failed != nil {
		if v.admitted { // the error does not say so, but the mark is raised
			_ = g.Record(ctx, resource, token, nil)
		}
		return nil, fmt.Errorf("write %q: %w", string(resource), v.failed)
	}
	return v.value, nil
}

func (g *Gate) lower(ctx context.Context, resource fencing.Resource, expected, to fencing.Token) error {
	if g.refused != nil {
		return g.refused
	}
	words := append(make([]any, reserved, reserved+3), MarkKey(resource), expected.String(), to.String())
	reply, err := resetScript.run(ctx, g.client, 1, words)
	if err != nil {
		return fmt.Errorf("reset the mark of %q: %w", string(resource), err)
	}
	switch v := parseReply(reply); {
	case v.failed != nil:
		return fmt.Errorf("reset the mark of %q: %w", string(resource), v.failed)
	case v.kind == "changed":
		return storagegate.CompareMark(resource, v.mark, expected)
	}
	return nil
}
