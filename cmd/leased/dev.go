package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leased-project/leased/cmd/leased/internal/member"
	"github.com/leased-project/leased/cmd/leased/internal/redisfleet"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
)

const (
	// devNodes is how many Redis nodes dev starts.
	devNodes = 5
	// devMaxTTL keeps the quarantine of an emptied node, and moves, short.
	devMaxTTL = 30 * time.Second
	// startTime is how long the only member may take until it is ready.
	startTime = 30 * time.Second
)

// devFlags are the flags of dev.
type devFlags struct {
	data, listen, raft, redis, logLevel string
}

func newDev() *cobra.Command {
	f := &devFlags{}
	c := &cobra.Command{Use: "dev", Short: "Run the whole service on this machine, to try it out",
		Long: "Run the whole service on this machine, to try it out: one Raft node on disk, and for the efficiency\n" +
			"mode five Redis nodes. They are redis-server processes if that program is installed, else embedded\n" +
			"imitations. Ctrl-C stops everything. The next start finds policies, locks in correctness mode and the\n" +
			"last token again; Redis starts empty, with larger tokens.", Args: cobra.NoArgs}
	flags := c.Flags()
	flags.StringVar(&f.data, "data", filepath.Join("data", "dev"), "folder for all data")
	flags.StringVar(&f.listen, "listen", defaultEndpoint, "address of the API")
	flags.StringVar(&f.raft, "raft-listen", "127.0.0.1:7421", "address of the Raft node")
	flags.StringVar(&f.redis, "redis", string(redisfleet.Auto), "auto, server, embedded or none")
	flags.StringVar(&f.logLevel, "log-level", "error", "debug, info, warn or error")
	c.RunE = func(c *cobra.Command, _ []string) error { return f.run(c.Context(), c.OutOrStdout()) }
	return c
}

func (f *devFlags) run(ctx context.Context, out io.Writer) error {
	kind, err := redisfleet.ParseKind(f.redis)
	if err != nil {
		return usageError(err)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	data, err := filepath.Abs(f.data)
	if err != nil {
		return err
	}
	if _, err := f.settings(data, &redisfleet.Fleet{}); err != nil { // before anything is started
		return usageError(err)
	}
	unlock, err := lockFolder(data)
	if err != nil {
		return err
	}
	defer unlock()
	fleet, err := redisfleet.Start(ctx, kind, data, devNodes)
	if err != nil {
		return err
	}
	defer fleet.Stop()
	s, err := f.settings(data, fleet)
	if err != nil {
		return usageError(err)
	}
	logger := newLogger(s)
	slog.SetDefault(logger)
	m, err := start(ctx, s, logger, signals)
	if err != nil {
		return err
	}
	if err = awaitReady(ctx, m, s.Fleet(), signals); err == nil {
		f.greet(out, m, fleet)
		err = attend(m, logger, signals, nil)
	}
	fmt.Fprintln(out, "stopping")
	if stopErr := m.Stop(); err == nil {
		err = stopErr
	}
	return err
}

// settings are those of a cluster of one.
func (f *devFlags) settings(data string, fleet *redisfleet.Fleet) (*settings.Settings, error) {
	flags := pflag.NewFlagSet("dev", pflag.ContinueOnError)
	settings.Flags(flags)
	for key, value := range map[string]string{"id": "dev", "data": filepath.Join(data, "raft"), "listen": f.listen, "raft-listen": f.raft,
		"bootstrap-expect": "1", "redis": strings.Join(fleet.Addrs, ","), "redis-max-ttl": devMaxTTL.String(), "log-level": f.logLevel} {
		if err := flags.Set(key, value); err != nil {
			return nil, err
		}
	}
	return settings.Load(flags, func(string) (string, bool) { return "", false }, "")
}

// await looks until ready, or until there is a reason to stop.
func await(m *member.Member, signals <-chan os.Signal, ready func() bool, problem func() error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(startTime)
	for !ready() {
		select {
		case <-tick.C:
		case s := <-signals:
			return interrupted(s)
		case err := <-m.Failed():
			return err
		case <-limit:
			return problem()
		}
	}
	return nil
}

// awaitLead waits until the member serves.
func awaitLead(m *member.Member, signals <-chan os.Signal) error {
	return await(m, signals, m.Node().Leads, func() error {
		return fmt.Errorf("the node does not lead after %v; is its folder that of a cluster with other members?", startTime)
	})
}

// awaitReady waits until the member serves both modes. The Redis nodes are new at
// each start, and those of the last one are gone: the log is told so.
func awaitReady(ctx context.Context, m *member.Member, fleet engine.Fleet, signals <-chan os.Signal) error {
	if err := awaitLead(m, signals); err != nil || fleet.IsZero() {
		return err
	}
	if before := m.Node().Topology().Fleet; !before.IsZero() && !before.Equal(fleet) {
		if _, err := m.Node().SetFleet(ctx, fleet, 0, true, true); err != nil {
			return fmt.Errorf("set the Redis fleet: %w", err)
		}
	}
	a := &access{endpoint: m.Address()}
	state := "no answer"
	return await(m, signals, func() bool {
		got, err := a.fleet(ctx)
		if err != nil {
			state = err.Error()
			return false
		}
		state = fleetText(got)
		return got.Ready && got.Next == nil && quorumVotes(got.Nodes) && sameNodes(got.Fleet, wire.FromFleet(fleet))
	}, func() error {
		return fmt.Errorf("the efficiency mode is not ready after %v: %s", startTime, state)
	})
}

// greet says what runs, and three things to try, which work as printed.
func (f *devFlags) greet(out io.Writer, m *member.Member, fleet *redisfleet.Fleet) {
	fmt.Fprintf(out, "leased is running, API and HTTP at %s, data in %s\n", m.Address(), f.data)
	switch fleet.Kind {
	case redisfleet.Servers:
		fmt.Fprintf(out, "efficiency mode: %d redis-server processes at %s\n", len(fleet.Addrs), strings.Join(fleet.Addrs, " "))
	case redisfleet.Embedded:
		fmt.Fprintf(out, "efficiency mode: %d embedded imitations of Redis, for trying out only", len(fleet.Addrs))
		if fleet.Why != "" {
			fmt.Fprintf(out, " (%s)", fleet.Why)
		}
		fmt.Fprintln(out)
	case redisfleet.None:
		fmt.Fprintln(out, "efficiency mode: none")
	}
	self, endpoint := selfCommand(), ""
	if m.Address() != defaultEndpoint {
		endpoint = " --endpoint " + m.Address()
	}
	fmt.Fprintf(out, `
Try, in another terminal:

  %s run%s nightly -- sh -c 'echo "my token is $LEASED_TOKEN"'
  curl -s -H 'content-type: application/json' -d '{"resource":"account/7","ttl":"30s"}' http://%s/leased.v1.LeaseService/Acquire
  %s demo pause

Ctrl-C stops everything.
`, self, endpoint, m.Address(), self)
}

// selfCommand is how to run this program again: as `go run` did, or by its path.
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
