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
type Gate struct {
	storagegate.Monitor
	client  redis.UniversalClient
	rule    fencing.Rule
	maxJump string // the bound as the argument of a script
	anySlot bool
	refused error // returned by every call if the gate cannot be used
}

var _ storagegate.Gate[*Tx] = (*Gate)(nil)

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
	return g
}

// Do implements storagegate.Gate: it admits token and runs the commands that
// write adds in one script. If write returns an error, nothing is sent.
func (g *Gate) Do(ctx context.Context, resource fencing.Resource, token fencing.Token, write func(tx *Tx) error) error {
	if err := storagegate.Validate(resource, token); err != nil {
		return err
	}
	tx := Tx{resource: resource, anySlot: g.anySlot}
	if err := write(&tx); err != nil {
		return err
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
func (g *Gate) Run(ctx context.Context, resource fencing.Resource, token fencing.Token, script *Script, keys []string, args ...any) (any, error) {
	if err := storagegate.Validate(resource, token); err != nil {
		return nil, err
	}
	for _, key := range keys {
		if err := checkKey(resource, key, g.anySlot); err != nil {
			return nil, fmt.Errorf("write %q: %w", string(resource), err)
		}
	}
	return g.run(ctx, script, resource, token, keys, args)
}

// Enter implements storagegate.Gate.
func (g *Gate) Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error {
	if err := storagegate.Validate(resource, token); err != nil {
		return err
	}
	if token == fencing.None {
		return storagegate.RefuseTokenless(ctx, g, resource)
	}
	_, err := g.run(ctx, enterScript, resource, token, nil, nil)
	return err
}

// Mark implements storagegate.Gate.
func (g *Gate) Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error) {
	if err := resource.Validate(); err != nil {
		return fencing.None, err
	}
	if g.refused != nil {
		return fencing.None, g.refused
	}
	if ctx.Err() != nil {
		return fencing.None, context.Cause(ctx)
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

// run runs a script, records its decision and returns its result.
func (g *Gate) run(ctx context.Context, script *Script, resource fencing.Resource, token fencing.Token, keys []string, args []any) (any, error) {
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
		return nil, g.Record(ctx, resource, token, &fencing.StaleError{Resource: resource, Token: token, Mark: v.mark})
	case "jump":
		return nil, g.Record(ctx, resource, token, &fencing.JumpError{Resource: resource, Token: token, Mark: v.mark, MaxJump: g.rule.Bound()})
	}
	if v.admitted {
		_ = g.Record(ctx, resource, token, nil)
	}
	if v.failed != nil {
		return nil, fmt.Errorf("write %q: %w", string(resource), v.failed)
	}
	return v.value, nil
}
