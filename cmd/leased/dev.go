package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leased-project/leased/cmd/leased/internal/member"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
	"github.com/leased-project/leased/raftstore/logstore"
)

const (
	// devNodes is the number of Redis nodes that dev starts.
	devNodes = 5
	// devMaxTTL keeps short what lasts one maximal TTL: the delay before an empty
	// node votes, and migrations.
	devMaxTTL = 30 * time.Second
	// devDiskTimeout is long: no other member could lead if the only one stopped because its disk is slow.
	devDiskTimeout = 2 * time.Minute
	// startTimeout is the time that the only member has to become ready.
	startTimeout = 30 * time.Second
)

// devFlags are the flags of dev.
type devFlags struct {
	data, listen, raft, redis, logStore, logLevel string
}

func setUpDev(c *cobra.Command) {
	f := &devFlags{}
	flags := c.Flags()
	flags.StringVar(&f.data, "data", filepath.Join("data", "dev"), "data folder")
	flags.StringVar(&f.listen, "listen", defaultEndpoint, "listen address of the API")
	flags.StringVar(&f.raft, "raft-listen", "127.0.0.1:7421", "listen address of Raft")
	flags.StringVar(&f.redis, "redis", "auto", "Redis nodes for efficiency mode: auto (if "+
		"redis-server is installed), server or none")
	flags.StringVar(&f.logStore, "log-store", string(raftstore.DefaultLogStore),
		"store of the Raft log: wal or bolt; fixed for a data folder")
	flags.StringVar(&f.logLevel, "log-level", "error", "log level: debug, info, warn or error")
	c.RunE = func(c *cobra.Command, _ []string) error { return f.run(c.Context(), c.OutOrStdout()) }
}

func (f *devFlags) run(ctx context.Context, out io.Writer) error {
	if !slices.Contains([]string{"auto", "server", "none"}, f.redis) {
		return usageError(fmt.Errorf("redis (%s) must be auto, server or none", f.redis))
	}
	untilSignal, stop := untilInterrupted(ctx, syscall.SIGHUP)
	defer stop()
	data, err := filepath.Abs(f.data)
	if err != nil {
		return err
	}
	if _, err := f.settings(data, nil); err != nil { // before anything starts
		return usageError(err)
	}
	lock, err := logstore.LockDir(data)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("data folder %s is in use by another `leased dev`: use that one, stop it, or give another "+
			"--data, --listen and --raft-listen", data)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	redis, err := startRedis(untilSignal, f.redis, data, devNodes)
	if err != nil {
		return err
	}
	defer redis.stop()
	s, err := f.settings(data, redis.addrs)
	if err != nil {
		return usageError(err)
	}
	logger := newLogger(s)
	m, err := start(untilSignal, s, logger)
	if err != nil {
		return err
	}
	if err = awaitReady(untilSignal, m, s.Fleet()); err == nil {
		f.greet(out, m, redis)
		err = waitForEnd(untilSignal, m, logger, nil, nil)
	}
	fmt.Fprintln(out, "stopping")
	if stopErr := m.Stop(); err == nil {
		err = stopErr
	}
	return err
}

// settings returns the settings of a single member.
func (f *devFlags) settings(data string, redis []string) (*settings.Settings, error) {
	flags := pflag.NewFlagSet("dev", pflag.ContinueOnError)
	settings.Flags(flags)
	for key, value := range map[string]string{
		"id": "dev", "data": filepath.Join(data, "raft"), "bootstrap-expect": "1",
		"listen": f.listen, "raft-listen": f.raft, "log-store": f.logStore, "log-level": f.logLevel,
		"redis": strings.Join(redis, ","), "redis-max-ttl": devMaxTTL.String(),
		"disk-timeout": devDiskTimeout.String(),
	} {
		if err := flags.Set(key, value); err != nil {
			return nil, err
		}
	}
	return settings.Load(flags, func(string) (string, bool) { return "", false }, "")
}

// await waits until ready reports true. It fails with timeout's error after
// startTimeout, and when ctx ends or the member fails.
func await(ctx context.Context, m *member.Member, ready func() bool, timeout func() error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(startTimeout)
	for !ready() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-m.Failed():
			return err
		case <-limit:
			return timeout()
		}
	}
	return nil
}

// awaitLeader waits until the member is the leader.
func awaitLeader(ctx context.Context, m *member.Member) error {
	return await(ctx, m, m.Node().Leads, func() error {
		return fmt.Errorf("the member is not the leader after %v; "+
			"does its data folder belong to a cluster with more members?", startTimeout)
	})
}

// awaitReady waits until the member serves both modes. Every start has new Redis
// nodes, and the nodes of the last start are gone permanently, so it changes the
// fleet by force.
func awaitReady(ctx context.Context, m *member.Member, fleet engine.Fleet) error {
	if err := awaitLeader(ctx, m); err != nil || fleet.IsZero() {
		return err
	}
	if before := m.Node().Topology().Fleet; !before.IsZero() && !before.Equal(fleet) {
		if _, err := m.Node().SetFleet(ctx, fleet, 0, true, true); err != nil {
			return fmt.Errorf("set the Redis fleet: %w", err)
		}
	}
	a := &access{endpoint: m.Address()}
	state := "the member did not answer"
	return await(ctx, m, func() bool {
		got, err := a.fleet(ctx)
		if err != nil {
			state = err.Error()
			return false
		}
		state = fleetText(got)
		return got.Ready && got.Next == nil && quorumVotes(got.Nodes) && sameNodes(got.Fleet, wire.FromFleet(fleet))
	}, func() error {
		return fmt.Errorf("efficiency mode is not ready after %v: %s", startTimeout, state)
	})
}

// greet prints what runs, the address of the dashboard, and commands to try.
func (f *devFlags) greet(out io.Writer, m *member.Member, redis *devRedis) {
	fmt.Fprintf(out, "leased is running: gRPC and HTTP API at %s, data in %s\n", m.Address(), f.data)
	switch {
	case len(redis.addrs) > 0:
		fmt.Fprintf(out, "efficiency mode: %d redis-server processes at %s\n",
			len(redis.addrs), strings.Join(redis.addrs, " "))
	case redis.missing != nil:
		fmt.Fprintf(out, "efficiency mode: off: %v\n", redis.missing)
	default:
		fmt.Fprintln(out, "efficiency mode: off")
	}
	self, endpoint := selfCommand(), ""
	if m.Address() != defaultEndpoint {
		endpoint = " --endpoint " + m.Address()
	}
	acquireURL := "http://" + m.Address() + "/leased.v1.LeaseService/Acquire"
	fmt.Fprintf(out, `
Dashboard: http://%[3]s/

Try, in another terminal:

  %[1]s run%[2]s nightly -- sh -c 'echo "my token is $LEASED_TOKEN"'
  curl -s -H 'content-type: application/json' -d '{"resource":"account/7","ttl":"30s"}' %[4]s
  %[1]s demo load%[2]s --duration 2m
  %[1]s top%[2]s --once
  %[1]s demo pause

Ctrl-C stops everything.
`, self, endpoint, m.Address(), acquireURL)
}

// selfCommand returns the command that runs this program: `go run`, or its path.
func selfCommand() string {
	path, err := os.Executable()
	if err != nil {
		return "leased"
	}
	if strings.Contains(path, string(filepath.Separator)+"go-build") {
		return "go run ./cmd/leased"
	}
	if filepath.IsAbs(os.Args[0]) || strings.ContainsRune(os.Args[0], filepath.Separator) {
		return os.Args[0]
	}
	return "leased"
}
