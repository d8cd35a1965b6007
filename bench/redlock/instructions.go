package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/redlockadapter"
)

// The difference between two runs counts.
const minCalls, maxCalls = 100, 400

// countInstructions prints how many instructions a server needs for an acquire and a release
// of an attempt, alone in its call and among 32. Other work on the machine does
// not change them, unlike all that is measured in time.
func countInstructions(ctx context.Context) error {
	redis.SetLogger(quiet{})
	for _, batch := range []int{1, 32} {
		var of [2]int
		for i, script := range []string{"acquire", "release"} {
			less, err := instructions(ctx, script, batch, minCalls)
			if err != nil {
				return err
			}
			more, err := instructions(ctx, script, batch, maxCalls)
			if err != nil {
				return err
			}
			of[i] = (more - less) / (maxCalls - minCalls) / batch
		}
		fmt.Printf("%d in a call: acquire %d, release %d instructions\n", batch, of[0], of[1])
	}
	return nil
}

// instructions runs a server under callgrind, and a script in it some times. It
// returns all instructions of the server, also those of its start.
func instructions(ctx context.Context, name string, batch, times int) (int, error) {
	dir, err := os.MkdirTemp("", "callgrind")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	addr := listener.Addr().String()
	listener.Close()
	_, port, _ := strings.Cut(addr, ":")
	out := filepath.Join(dir, "out")
	server := exec.CommandContext(ctx, "valgrind", "--tool=callgrind", "--callgrind-out-file="+out, // needs valgrind and redis-server
		"redis-server", "--port", port, "--save", "", "--appendonly", "no", "--dir", dir, "--hz", "1")
	if err := server.Start(); err != nil {
		return 0, err
	}
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, PoolSize: 1, ReadTimeout: time.Minute})
	defer client.Close()
	for client.Ping(ctx).Err() != nil { // it is slow to start
		if server.ProcessState != nil || ctx.Err() != nil {
			return 0, fmt.Errorf("redis-server under valgrind does not answer at %s", addr)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err := calls(ctx, client, name, batch, times); err != nil {
		_ = server.Process.Kill()
		_ = server.Wait()
		return 0, err
	}
	_ = client.ShutdownNoSave(ctx).Err() // it hangs up
	_ = server.Wait()                    // its exit code is of no use
	text, err := os.ReadFile(out)
	if err != nil {
		return 0, err
	}
	total := regexp.MustCompile(`(?m)^(?:summary|totals): (\d+)`).FindSubmatch(text)
	if total == nil {
		return 0, fmt.Errorf("callgrind has no total in %s", out)
	}
	return strconv.Atoi(string(total[1]))
}

// calls has a script called some times, each time for other locks. What is made
// ready for them does not depend on how often it is.
func calls(ctx context.Context, client *redis.Client, name string, batch, times int) error {
	text, err := redlockadapter.Script(name)
	if err != nil {
		return err
	}
	lock, head := "1", []any{1, 30000} // free
	if name == "release" {
		lock, head = "1 99999999999999 "+body, nil
	}
	fields := []any{"state", "1 0 1000000 0"}
	for set := range maxCalls {
		for i := range batch {
			fields = append(fields, lockName(set, i), lock)
		}
	}
	if err := client.HSet(ctx, "node", fields...).Err(); err != nil {
		return err
	}
	sha, err := client.ScriptLoad(ctx, text).Result()
	if err != nil {
		return err
	}
	for set := range times {
		args := head[:len(head):len(head)]
		for i := range batch {
			args = append(args, lockName(set, i), body)
		}
		if err := client.EvalSha(ctx, sha, []string{"node"}, args...).Err(); err != nil {
			return err
		}
	}
	return nil
}

// body is that of an attempt, as long as in use.
const body = "0123456789abcdef0123456789abcdef:1.0123456789abcdef.1\n30000\nholder\n"

func lockName(set, i int) string { return fmt.Sprintf(":lock-%d-%d", set, i) }
