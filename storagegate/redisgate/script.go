package redisgate

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/storagegate"
)

var (
	//go:embed scripts/fence.lua
	fenceLua string
	//go:embed scripts/enter.lua
	enterLua string
	//go:embed scripts/set.lua
	setLua string
	//go:embed scripts/write.lua
	writeLua string
	//go:embed scripts/undo.lua
	undoLua string
	//go:embed scripts/reset.lua
	resetLua string
	//go:embed scripts/custom.lua
	customLua string
)

var (
	enterScript = newScript(fenceLua + enterLua)
	resetScript = newScript(resetLua)
	setScript   = newScript(fenceLua + setLua + undoLua)
	writeScript = newScript(fenceLua + writeLua + undoLua)
)

// Script is a write in Lua for [Gate.Run].
type Script struct {
	source, digest string
}

// NewScript returns a gated script. body is a Lua script as for EVAL: it uses KEYS
// and ARGV, calls redis.call and can return a value. It runs only if the token is
// admitted. As usual in Redis, returned numbers are truncated to integers.
func NewScript(body string) *Script {
	return newScript(fenceLua + strings.Replace(customLua, "\nBODY\n", "\n"+body+"\n", 1))
}

func newScript(source string) *Script {
	sum := sha1.Sum([]byte(source)) // Redis identifies scripts by it
	return &Script{source: source, digest: hex.EncodeToString(sum[:])}
}

// sendOnce is a command that go-redis does not retry. A retry after a lost
// connection could be refused although the first request has written.
type sendOnce struct{ *redis.Cmd }

// NoRetry makes go-redis send the command only once.
func (sendOnce) NoRetry() bool { return true }

// reserved is the number of words before the keys: command, script and number of
// keys.
const reserved = 3

// run sends the digest of the script, and its source if the server does not know
// the digest. words starts with reserved elements, followed by count keys and the
// arguments.
func (s *Script) run(ctx context.Context, client redis.UniversalClient, count int, words []any) (any, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	words[0], words[1], words[2] = "EVALSHA", s.digest, count
	reply, err := send(ctx, client, words)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		words[0], words[1] = "EVAL", s.source
		reply, err = send(ctx, client, words)
	}
	return reply, outcome(err)
}

func send(ctx context.Context, client redis.UniversalClient, words []any) (any, error) {
	cmd := sendOnce{redis.NewCmd(ctx, words...)}
	cmd.SetFirstKeyPos(reserved)
	err := client.Process(ctx, cmd)
	return cmd.Val(), err
}

// outcome adds ErrUncertain to err if the server may have run the script. If the
// server returned an error or could not be reached, the script did not run.
func outcome(err error) error {
	if err == nil {
		return nil
	}
	var reply redis.Error
	var dial *net.OpError
	if errors.As(err, &reply) || errors.As(err, &dial) && dial.Op == "dial" ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrClosed) {
		return err
	}
	return fmt.Errorf("%w: %w", storagegate.ErrUncertain, err)
}
