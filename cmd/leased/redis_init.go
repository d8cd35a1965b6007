package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// redisInitLong is the help of redis init.
const redisInitLong = `Tell the efficiency mode how far tokens had come, where it cannot find out by itself. Every later token is above the floor.
Without --floor the command changes nothing and proposes one; the gates know the largest token that was used.

A floor below the one that the service proposes is refused unless --force is given.

With a service this is needed only after ` + "`leased snapshot restore` or `leased cluster recover`" + `, and only if a quorum of the Redis
nodes has lost its data too. New nodes, and nodes that were restarted or emptied, need nothing.

With --redis it initialises nodes that no service looks after, for programs that use redlockadapter alone: once when
they are new (--floor 0), and again if a majority of them lost everything.`

// initFlags are the flags of redis init.
type initFlags struct {
	access    *access
	output    *output
	redis     *redisFlags
	nodes     string
	namespace string
	maxTTL    time.Duration
	floor     uint64
	force     bool
}

func newRedisInit() *cobra.Command {
	f := &initFlags{}
	c := &cobra.Command{Use: "init [--floor TOKEN]", Short: "Provide a floor for tokens where the efficiency mode cannot find one", Long: redisInitLong,
		Example: "  leased redis init                       # does a restored service need a floor, and which one?\n" +
			"  leased redis init --floor 8589934592\n" +
			"  leased redis init --redis 127.0.0.1:6379 --floor 0   # a new Redis, without a service",
		Args: cobra.NoArgs}
	f.access, f.output, f.redis = addAccess(c), addOutput(c), addRedisAccess(c)
	flags := c.Flags()
	flags.Uint64Var(&f.floor, "floor", 0, "every later token is above this one")
	flags.BoolVar(&f.force, "force", false, "provide a floor below the one that the service proposes")
	flags.StringVar(&f.nodes, "redis", "", "nodes without a service, as host:port, separated by commas")
	flags.StringVar(&f.namespace, "redis-namespace", redlockadapter.DefaultNamespace, "how the keys in Redis begin; with --redis")
	flags.DurationVar(&f.maxTTL, "redis-max-ttl", redlockadapter.DefaultMaxTTL, "longest TTL of a lease, as the programs have it; with --redis")
	c.RunE = func(c *cobra.Command, _ []string) error {
		switch given := c.Flags().Changed("floor"); {
		case f.nodes != "":
			return f.standalone(c, given)
		case given:
			return f.provide(c)
		default:
			return f.propose(c)
		}
	}
	return c
}

// provide gives the floor to the service. One below its proposal may be below
// tokens that were granted.
func (f *initFlags) provide(c *cobra.Command) error {
	got, err := f.access.leaderFleet(c.Context())
	switch {
	case err != nil:
		return err
	case !f.force && !got.Ready && f.floor < got.ProposedFloor:
		return usageError(fmt.Errorf("floor (%d) is below %d, which the service proposes as above all that it knows of; "+
			"give --floor %d, or --force if all granted tokens are below yours", f.floor, got.ProposedFloor, got.ProposedFloor))
	}
	return f.access.onLeader(c.Context(), func(conn *grpc.ClientConn) error {
		got, err := pb.NewRedisServiceClient(conn).ProvideFloor(c.Context(), &pb.ProvideFloorRequest{Floor: f.floor})
		if err != nil {
			return err
		}
		return f.output.say(c, got, "later tokens of the efficiency mode are above %d; see `leased redis status`", f.floor)
	})
}

// propose says whether the service needs a floor, and which one.
func (f *initFlags) propose(c *cobra.Command) error {
	got, err := f.access.leaderFleet(c.Context())
	if errors.Is(err, lease.ErrUnavailable) { // as while there is no leader
		got, err = f.access.fleet(c.Context())
	}
	switch {
	case err != nil:
		return err
	case len(got.GetFleet().GetAddresses()) == 0:
		return errNoFleet
	case got.Ready:
		return f.output.say(c, got, "nothing to do: the efficiency mode is ready")
	}
	why := "the efficiency mode is not ready"
	if got.WaitingFor != "" {
		why = "the efficiency mode is waiting for: " + got.WaitingFor
	}
	return f.output.say(c, got, "%s\nIf that cannot happen, provide a floor; this one is above all that the service knows of:\n  leased redis init --floor %d",
		why, got.ProposedFloor)
}

// standalone initialises nodes without a service.
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
			return f.output.say(c, &pb.GetFleetResponse{}, "fewer than a majority of the nodes can say how far tokens had come; "+
				"ask the gates for the largest token that was used, and give --floor well above it")
		}
		return f.output.say(c, &pb.GetFleetResponse{ProposedFloor: uint64(floor)}, "initialise the nodes with\n  leased redis init%s --floor %d", redisFlagsGiven(c.Flags()), floor)
	}
	if err := redlockadapter.Init(c.Context(), config, fencing.Token(f.floor)); err != nil {
		return err
	}
	return f.output.say(c, &pb.GetFleetResponse{Fleet: &pb.RedisFleet{Addresses: strings.Split(f.nodes, ","), Namespace: f.namespace, MaxTtl: f.maxTTL.String()}},
		"initialised %s: tokens are above %d", count(len(config.Nodes), "Redis node"), f.floor)
}

// redisFlagsGiven are the flags about Redis of a command line, to be given again.
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
	access, err := f.redis.access()
	if err != nil {
		return redlockadapter.Config{}, err
	}
	config := redlockadapter.Config{Namespace: f.namespace, MaxTTL: f.maxTTL, NodeTimeout: connectTime}
	for address := range strings.SplitSeq(f.nodes, ",") {
		if address = strings.TrimSpace(address); address == "" {
			continue
		}
		if err := access.Check([]string{address}); err != nil {
			return config, usageError(err)
		}
		config.Nodes = append(config.Nodes, access.Options(address))
	}
	return config, nil
}

// askNodes asks the nodes for their state, and changes nothing. Nodes that a
// service looks after are refused: only its log may assign ranges of tokens there.
func askNodes(ctx context.Context, config redlockadapter.Config) ([]recovery.Report, error) {
	config.Topology = func() engine.Topology { return engine.Topology{} } // not standalone: nothing is recovered
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
			refused = errors.Join(refused, fmt.Errorf("redis node %s belongs to a service, which initialises it by itself; leave --redis out", n.Addr))
		}
	}
	return reports, refused
}

// proposal is a floor above everything that the nodes report: 0 if all of them
// say that they never had a state.
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
