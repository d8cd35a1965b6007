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
	//go:embed scripts/custom.lua
	customLua string
)

var (
	enterScript = newScript(fenceLua + enterLua)
	setScript   = newScript(fenceLua + setLua + undoLua)
	writeScript = newScript(fenceLua + writeLua + undoLua)
)

// Script is a write in Lua, for [Gate.Run].
type Script struct {
	source, digest string
}

// NewScript returns a gated script. body is Lua that reads KEYS and ARGV, calls
// redis.call, and may return a value: what EVAL takes. It runs only if the token
// passes. Numbers that it returns are cut to integers, as always in Redis.
func NewScript(body string) *Script {
	return newScript(fenceLua + strings.Replace(customLua, "\nBODY\n", "\n"+body+"\n", 1))
}

func newScript(source string) *Script {
	sum := sha1.Sum([]byte(source)) // Redis names scripts by it
	return &Script{source: source, digest: hex.EncodeToString(sum[:])}
}

// once is a command that go-redis sends at most one time. A retry after a lost
// connection could be refused although the first try has written.
type once struct{ *redis.Cmd }

// NoRetry tells go-redis.
func (once) NoRetry() bool { return true }

// reserved is how many words in front of the keys belong to run.
const reserved = 3

// run sends the script by its digest, and with its text if the server does not
// know it yet, which is found out before anything is written. words are what is
// reserved, then the keys, of which there are count, and the arguments.
func (s *Script) run(ctx context.Context, client redis.UniversalClient, count int, words []any) (any, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	words[0], words[1], words[2] = "EVALSHA", s.digest, count
	answer, err := send(ctx, client, words)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		words[0], words[1] = "EVAL", s.source
		answer, err = send(ctx, client, words)
	}
	return answer, outcome(err)
}

func send(ctx context.Context, client redis.UniversalClient, words []any) (any, error) {
	cmd := once{redis.NewCmd(ctx, words...)}
	cmd.SetFirstKeyPos(reserved)
	err := client.Process(ctx, cmd)
	return cmd.Val(), err
}

// outcome says whether the server can have run the script. An answer of the
// server itself, and a failure to reach it, mean that it has not.
func outcome(err error) error {
	if err == nil {
		return nil
	}
	var answer redis.Error
	var dial *net.OpError
	if errors.As(err, &answer) || errors.As(err, &dial) && dial.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrClosed) {
		return err
	}
	return fmt.Errorf("%w: %w", storagegate.ErrUncertain, err)
}
