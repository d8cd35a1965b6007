package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/redlockadapter"
)

func newRedisFleet() *cobra.Command {
	c := &cobra.Command{Use: "fleet", Short: "Show and change which Redis nodes serve efficiency mode", Args: cobra.NoArgs}
	c.AddCommand(newFleetShow(), newFleetSet())
	return c
}

func newFleetShow() *cobra.Command {
	c := &cobra.Command{Use: "show", Short: "Show the Redis nodes of efficiency mode, and a change in progress", Args: cobra.NoArgs}
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		got, err := a.fleet(c.Context())
		if err != nil {
			return err
		}
		if len(got.GetFleet().GetAddresses()) == 0 {
			return errNoFleet
		}
		return o.print(c.OutOrStdout(), got, func(t *tabwriter.Writer) {
			for _, address := range got.Fleet.Addresses {
				fmt.Fprintln(t, address)
			}
			fmt.Fprintf(t, "\n%s\n", fleetText(got))
		})
	}
	return c
}

const fleetSetLong = `Change the Redis nodes of efficiency mode. Name all nodes of the new fleet: an odd number of independent masters. Nodes may
be in both fleets. The namespace and the longest TTL stay unchanged unless they are given.

The service checks that a quorum of the new nodes is usable, then stops the old fleet: a quorum of its nodes refuses all
later acquisitions and renewals. It waits until the leases of the old fleet have expired (--now skips this, and holders lose
their leases) and starts the new fleet with larger tokens. If the old fleet is lost for good, --force skips these steps. If
the old fleet is still running, --force can let an old holder get a smaller token after a larger one was granted.

After ` + "`leased snapshot restore` or `leased cluster recover`" + `, the service may know only a fleet that was replaced since. With
--force the given fleet takes its place at once, and the service waits until its nodes have reported their tokens.

The command waits until the new fleet is ready. Ctrl-C ends only the command; the service completes the change.`

func newFleetSet() *cobra.Command {
	r := &pb.SetFleetRequest{Fleet: &pb.RedisFleet{}}
	var noWait bool
	c := &cobra.Command{Use: "set HOST:PORT...", Short: "Change the Redis nodes of efficiency mode", Long: fleetSetLong,
		Example: "  leased redis fleet set redis1:6379 redis2:6379 redis3:6379\n" +
			"  leased redis fleet set redis4:6379 redis5:6379 redis6:6379 --now",
		Args: atLeast(1, "the addresses of the Redis nodes, HOST:PORT")}
	a, o := addAccess(c), addOutput(c)
	flags := c.Flags()
	flags.StringVar(&r.Fleet.Namespace, "namespace", "", "prefix of the keys in Redis (default: unchanged, or "+redlockadapter.DefaultNamespace+")")
	flags.StringVar(&r.Fleet.MaxTtl, "max-ttl", "", "longest TTL of a lease (default: unchanged, or "+redlockadapter.DefaultMaxTTL.String()+")")
	flags.BoolVar(&r.Now, "now", false, "do not wait until the leases of the old fleet have expired")
	flags.BoolVar(&r.Force, "force", false, "change even if a quorum of the old fleet (lost for good) or of the new fleet cannot be reached")
	flags.BoolVar(&noWait, "no-wait", false, "return when the change has started")
	c.RunE = func(c *cobra.Command, args []string) error {
		r.Fleet.Addresses = settings.Split(strings.Join(args, ","))
		if err := a.fillFleet(c.Context(), r.Fleet); err != nil {
			return err
		}
		got, err := fetch(c.Context(), a, pb.NewRedisServiceClient, pb.RedisServiceClient.SetFleet, r)
		if err != nil {
			return err
		}
		if noWait {
			return o.say(c, got, "the change of the fleet has started; see `leased redis status`")
		}
		if err := a.followFleet(c, r.Fleet, got.Version); err != nil {
			return err
		}
		if len(r.Fleet.Addresses) == 1 {
			return o.say(c, got, "1 Redis node serves efficiency mode")
		}
		return o.say(c, got, "%d Redis nodes serve efficiency mode", len(r.Fleet.Addresses))
	}
	return c
}

// fillFleet fills the fields that were not given from the current fleet.
func (a *access) fillFleet(ctx context.Context, f *pb.RedisFleet) error {
	current, err := a.fleet(ctx)
	if err != nil {
		return err
	}
	old := current.GetFleet()
	if current.GetNext() != nil {
		old = current.Next
	}
	f.Namespace = cmp.Or(f.Namespace, old.GetNamespace(), redlockadapter.DefaultNamespace)
	f.MaxTtl = cmp.Or(f.MaxTtl, old.GetMaxTtl(), redlockadapter.DefaultMaxTTL.String())
	return nil
}

// followFleet returns when the fleet of a version is ready.
func (a *access) followFleet(c *cobra.Command, want *pb.RedisFleet, version uint64) error {
	return follow(c, "the change of the fleet continues; see `leased redis status`", func(ctx context.Context) (step, bool, error) {
		got, err := a.fleet(ctx)
		switch {
		case err != nil:
			return step{}, false, err
		case got.Version < version:
			return step{text: "waiting for this member to apply the change"}, false, nil
		case got.Next == nil && !sameNodes(got.Fleet, want):
			return step{}, false, fmt.Errorf("a later change has replaced this one; see `leased redis fleet show`")
		case got.Next == nil && got.Ready && quorumVotes(got.Nodes):
			return step{}, true, nil
		}
		return newStep(fleetText(got)), false, nil
	})
}

func sameNodes(a, b *pb.RedisFleet) bool {
	return slices.Equal(slices.Sorted(slices.Values(a.GetAddresses())), slices.Sorted(slices.Values(b.GetAddresses())))
}

// quorumVotes reports whether a quorum of the nodes votes.
func quorumVotes(nodes []*pb.RedisNode) bool {
	votes := 0
	for _, n := range nodes {
		if n.Error == "" && !n.Empty && !n.Unnamed {
			votes++
		}
	}
	return 2*votes > len(nodes)
}
