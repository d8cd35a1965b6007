package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/member"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/redlockadapter"
)

func newRedis() *cobra.Command {
	c := &cobra.Command{Use: "redis", Short: "See and initialise the Redis masters of the efficiency mode", Args: cobra.NoArgs}
	c.AddCommand(newRedisStatus(), newRedisInit(), newRedisRejoin())
	return c
}

func newRedisStatus() *cobra.Command {
	c := &cobra.Command{Use: "status", Short: "Show how the Redis masters are doing, as the member at --endpoint sees them", Args: cobra.NoArgs}
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.onAny(c.Context(), func(conn *grpc.ClientConn) error {
			s, err := pb.NewClusterServiceClient(conn).Status(c.Context(), &pb.StatusRequest{})
			if err != nil {
				return err
			}
			if len(s.Redis) == 0 {
				return fmt.Errorf("member %s has no Redis masters; give them to `leased serve` with --redis", s.Id)
			}
			return o.print(c.OutOrStdout(), &pb.StatusResponse{Redis: s.Redis}, func(t *tabwriter.Writer) {
				row(t, "MASTER", "STATE", "EPOCH", "MAX TOKEN", "FLOOR", "SKEW")
				for _, n := range s.Redis {
					row(t, n.Address, stateOf(n), n.Epoch, n.Max, n.Floor, n.Skew)
				}
			})
		})
	}
	return c
}

func stateOf(n *pb.RedisNode) string {
	switch {
	case n.Error != "":
		return "out of reach: " + n.Error
	case n.Restarted:
		return "restarted, waits for a majority that was not"
	case n.Empty && n.Quarantine != "":
		return "empty, kept out for at least " + n.Quarantine
	case n.Empty:
		return "empty"
	}
	return "votes"
}

// fleetFlags say which Redis masters to use directly.
type fleetFlags struct {
	settings settings.Settings
	nodes    string
}

func addFleet(c *cobra.Command) *fleetFlags {
	f := &fleetFlags{}
	flags := c.Flags()
	flags.StringVar(&f.nodes, "redis", fromEnv("LEASED_REDIS", ""), "Redis masters, as host:port, separated by commas (LEASED_REDIS; default: those of the member at --endpoint)")
	flags.StringVar(&f.settings.RedisNamespace, "redis-namespace", fromEnv("LEASED_REDIS_NAMESPACE", redlockadapter.DefaultNamespace), "how the keys in Redis begin")
	flags.StringVar(&f.settings.RedisPasswordFile, "redis-password-file", fromEnv("LEASED_REDIS_PASSWORD_FILE", ""), "file with the password of the Redis masters")
	flags.DurationVar(&f.settings.RedisMaxTTL, "redis-max-ttl", redlockadapter.DefaultMaxTTL, "longest ttl in the efficiency mode, as the members have it")
	return f
}

// config is the masters that were named, or those that a member uses.
func (f *fleetFlags) config(ctx context.Context, a *access) (redlockadapter.Config, error) {
	for part := range strings.SplitSeq(f.nodes, ",") {
		if part = strings.TrimSpace(part); part != "" {
			f.settings.Redis = append(f.settings.Redis, part)
		}
	}
	if len(f.settings.Redis) == 0 {
		err := a.onAny(ctx, func(conn *grpc.ClientConn) error {
			s, err := pb.NewClusterServiceClient(conn).Status(ctx, &pb.StatusRequest{})
			for _, n := range s.GetRedis() {
				f.settings.Redis = append(f.settings.Redis, n.Address)
			}
			return err
		})
		if err != nil {
			return redlockadapter.Config{}, fmt.Errorf("ask a member for its Redis masters (or name them with --redis): %w", err)
		}
	}
	return member.RedisConfig(&f.settings)
}

func newRedisInit() *cobra.Command {
	var floor uint64
	c := &cobra.Command{Use: "init --floor TOKEN", Short: "Let new or emptied Redis masters vote",
		Long: "Let Redis masters vote that are used for the first time (--floor 0), or when a majority has lost its\n" +
			"data. You answer for the floor: no token above it must ever have been granted; the gates know. Wait\n" +
			"for the longest ttl first if holders may still be at work. Where a majority has its data nothing\n" +
			"changes: the others rejoin by themselves.", Args: cobra.NoArgs}
	a, f, o := addAccess(c), addFleet(c), addOutput(c)
	c.Flags().Uint64Var(&floor, "floor", 0, "the largest token that was ever granted")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if !c.Flags().Changed("floor") {
			return usageError(fmt.Errorf("floor must be given: 0 for masters that were never used, else the largest token that was ever granted"))
		}
		config, err := f.config(c.Context(), a)
		if err != nil {
			return err
		}
		if err := redlockadapter.Init(c.Context(), config, fencing.Token(floor)); err != nil {
			return err
		}
		return o.say(c, mastersOf(config), "%d masters may vote", len(config.Nodes))
	}
	return c
}

func newRedisRejoin() *cobra.Command {
	c := &cobra.Command{Use: "rejoin", Short: "Bring emptied Redis masters back, and wait until all vote",
		Long: "Bring emptied Redis masters back while a majority has its data, and wait until all vote. Running\n" +
			"members do this by themselves; an emptied master is kept out for the longest ttl.", Args: cobra.NoArgs}
	a, f, o := addAccess(c), addFleet(c), addOutput(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop := untilInterrupted(c.Context())
		defer stop()
		config, err := f.config(ctx, a)
		if err != nil {
			return err
		}
		backend, err := redlockadapter.New(ctx, config)
		if err != nil {
			return err
		}
		defer func() { _ = backend.Close(context.WithoutCancel(ctx)) }()
		if err := awaitVotes(ctx, c, backend); err != nil {
			return err
		}
		return o.say(c, mastersOf(config), "all %d masters vote", len(config.Nodes))
	}
	return c
}

// mastersOf are the masters as a message.
func mastersOf(config redlockadapter.Config) *pb.StatusResponse {
	s := &pb.StatusResponse{}
	for _, n := range config.Nodes {
		s.Redis = append(s.Redis, &pb.RedisNode{Address: n.Addr})
	}
	return s
}

// awaitVotes returns when all vote. It prints what is missing, each time that it
// changes.
func awaitVotes(ctx context.Context, c *cobra.Command, backend *redlockadapter.Backend) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	told := ""
	for {
		var missing []string
		empty := 0
		statuses := backend.NodeStatuses(ctx)
		for _, n := range statuses {
			switch {
			case n.Err != nil:
				missing = append(missing, n.Addr+" (out of reach)")
			case n.Restarted:
				missing = append(missing, n.Addr+" (restarted)")
			case n.Empty:
				empty++
				missing = append(missing, n.Addr+" (empty)")
			}
		}
		if len(missing) == 0 {
			return nil
		}
		if 2*empty > len(statuses) {
			return &codeError{exitUnavailable, redlockadapter.ErrNoData}
		}
		if text := strings.Join(missing, ", "); text != told {
			told = text
			fmt.Fprintf(c.ErrOrStderr(), "waiting for %s; an emptied master is kept out for the longest ttl\n", text)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
