package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/lockview"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// initFlags are the flags of redis init.
type initFlags struct {
	access    *access
	output    *output
	nodes     string
	namespace string
	maxTTL    time.Duration
	floor     uint64
	force     bool
}

func setUpRedisInit(c *cobra.Command) {
	f := &initFlags{}
	f.access, f.output = addRedisAccess(c), addOutput(c)
	flags := c.Flags()
	flags.Uint64Var(&f.floor, "floor", 0, "every later token is above this value")
	flags.BoolVar(&f.force, "force", false,
		"accept a floor below the proposal of the service, or a fleet that its nodes report as replaced")
	flags.StringVar(&f.nodes, "redis", "", "nodes without a service, HOST:PORT, separated by commas")
	flags.StringVar(&f.namespace, "redis-namespace", redlockadapter.DefaultNamespace,
		"prefix of the keys in Redis; with --redis")
	flags.DurationVar(&f.maxTTL, "redis-max-ttl", redlockadapter.DefaultMaxTTL,
		"longest TTL of a lease, the same as in the programs; with --redis")
	c.RunE = func(c *cobra.Command, _ []string) error {
		switch given := c.Flags().Changed("floor"); {
		case c.Flags().Changed("redis"): // empty means no nodes, not the service
			return f.standalone(c, given)
		case given:
			return f.provide(c)
		default:
			return f.propose(c)
		}
	}
}

// provide sets the floor of the service. A floor below its proposal may be below
// granted tokens.
func (f *initFlags) provide(c *cobra.Command) error {
	got, err := f.access.leaderFleet(c.Context())
	switch {
	case err != nil:
		return err
	case !f.force && !got.Ready && f.floor < got.ProposedFloor:
		return usageError(fmt.Errorf("--floor (%d) is below %d, the proposal of the service, which is above all tokens "+
			"that it knows; give --floor %d, or --force if you are sure that all granted tokens are below yours",
			f.floor, got.ProposedFloor, got.ProposedFloor))
	}
	done, err := fetch(c.Context(), f.access, api.ProvideFloor, &pb.ProvideFloorRequest{Floor: f.floor, Force: f.force})
	return f.output.say(c, done, err, "later tokens in efficiency mode are above %d; see `leased redis status`", f.floor)
}

// propose prints whether the service needs a floor, and a proposal.
func (f *initFlags) propose(c *cobra.Command) error {
	got, err := f.access.leaderFleet(c.Context())
	if errors.Is(err, lease.ErrUnavailable) { // there may be no leader
		got, err = f.access.fleet(c.Context())
	}
	switch {
	case err != nil:
		return err
	case len(got.GetFleet().GetAddresses()) == 0:
		return errNoFleet
	case got.Ready:
		return f.output.say(c, got, nil, "nothing to do: efficiency mode is ready")
	}
	why := "efficiency mode is not ready"
	if got.WaitingFor != "" {
		why = "efficiency mode is waiting for: " + got.WaitingFor
	}
	return f.output.say(c, got, nil, "%s\nIf that cannot happen, set a floor. This one is above all tokens that the "+
		"service knows:\n  leased redis init --floor %d", why, got.ProposedFloor)
}

// standalone initializes nodes without a service.
func (f *initFlags) standalone(c *cobra.Command, given bool) error {
	config, err := f.config()
	if err != nil {
		return err
	}
	reports, err := askNodes(c.Context(), config)
	if err != nil {
		return err
	}
	if !given {
		floor, known := proposal(reports)
		if !known {
			return f.output.say(c, &pb.GetFleetResponse{}, nil,
				"fewer than a majority of the nodes can report the largest token; "+
					"find the largest mark of your gates, and give a --floor well above it")
		}
		before, after := "initialize the nodes with", ""
		if floor == fencing.None {
			before = "the nodes have no state. If they have never granted a token, initialize them with"
			after = "\nOtherwise tokens would repeat: find the largest mark of your gates, and give a --floor well above it."
		}
		return f.output.say(c, &pb.GetFleetResponse{ProposedFloor: uint64(floor)}, nil,
			"%s\n  leased redis init%s --floor %d%s", before, redisFlagsGiven(c.Flags()), floor, after)
	}
	if err := redlockadapter.Init(c.Context(), config, fencing.Token(f.floor)); err != nil {
		return err
	}
	fleet := &pb.RedisFleet{Addresses: settings.Split(f.nodes), Namespace: f.namespace, MaxTtl: f.maxTTL.String()}
	return f.output.say(c, &pb.GetFleetResponse{Fleet: fleet}, nil,
		"initialized %s: tokens are above %d", lockview.Count(len(config.Nodes), "Redis node"), f.floor)
}

// redisFlagsGiven returns the Redis flags of the command line, for a command to
// copy.
func redisFlagsGiven(flags *pflag.FlagSet) string {
	var text strings.Builder
	flags.Visit(func(g *pflag.Flag) {
		switch value := g.Value.String(); {
		case !strings.HasPrefix(g.Name, "redis"):
		case g.Value.Type() == "bool":
			fmt.Fprintf(&text, " --%s=%s", g.Name, value)
		case strings.ContainsAny(value, " \t$*?'\"\\&;"):
			fmt.Fprintf(&text, " --%s '%s'", g.Name, strings.ReplaceAll(value, "'", `'\''`))
		default:
			fmt.Fprintf(&text, " --%s %s", g.Name, value)
		}
	})
	return text.String()
}

func (f *initFlags) config() (redlockadapter.Config, error) {
	addresses := settings.Split(f.nodes)
	nodes, err := f.access.redisNodes(addresses...)
	if err != nil {
		return redlockadapter.Config{}, err
	}
	config := redlockadapter.Config{Namespace: f.namespace, MaxTTL: f.maxTTL, NodeTimeout: min(connectTimeout, f.maxTTL)}
	for _, address := range addresses {
		config.Nodes = append(config.Nodes, nodes.Options(address))
	}
	return config, nil
}

// askNodes returns the reports of the nodes without changing them. It rejects nodes
// of a service: only its log may assign ranges of tokens to them.
func askNodes(ctx context.Context, config redlockadapter.Config) ([]recovery.Report, error) {
	config.Topology = func() engine.Topology { return engine.Topology{} } // not standalone: the backend recovers no nodes
	backend, err := redlockadapter.New(ctx, config)
	if err != nil {
		return nil, err
	}
	defer func() { _ = backend.Close(context.WithoutCancel(ctx)) }()
	var reports []recovery.Report
	var refused error
	for _, n := range backend.NodeStatuses(ctx) {
		reports = append(reports, n.Report)
		if live := n.Report.Live; live != nil && live.Ceiling < fencing.MaxToken {
			refused = errors.Join(refused, fmt.Errorf("node %s belongs to a service, which initializes it automatically; "+
				"omit --redis", n.Addr))
		}
	}
	return reports, refused
}

// proposal returns a floor above everything that the nodes report: 0 if all of
// them report that they are new.
func proposal(reports []recovery.Report) (floor fencing.Token, known bool) {
	evidence := false
	for _, r := range reports {
		if !r.Reached {
			return recovery.StandaloneFloor(reports)
		}
		evidence = evidence || r.Live != nil || r.Former != nil
	}
	if !evidence {
		return 0, true
	}
	return recovery.StandaloneFloor(reports)
}
