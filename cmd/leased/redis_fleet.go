package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/redlockadapter"
)

func newRedisFleet() *cobra.Command {
	c := &cobra.Command{Use: "fleet", Short: "Say which Redis nodes serve the efficiency mode", Args: cobra.NoArgs}
	c.AddCommand(newFleetShow(), newFleetSet())
	return c
}

func newFleetShow() *cobra.Command {
	c := &cobra.Command{Use: "show", Short: "Show which Redis nodes serve the efficiency mode, and a change that is under way", Args: cobra.NoArgs}
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

// fleetSetLong is the help of redis fleet set.
const fleetSetLong = `Change the Redis nodes that serve the efficiency mode. Name all nodes of the new fleet, an odd number of masters that
are independent of each other; nodes may stay. Namespace and longest TTL stay as they are unless they are given.

The service first checks that a quorum of the new nodes can be used, and then stops the old fleet: a quorum of its nodes refuses to grant anything from then on, and the leases
that they granted run out within the longest TTL, or are lost at once with --now. Then the new fleet starts, with
larger tokens. If the old fleet is gone for good, --force changes it without asking; if it is not gone, a holder of
an old lease may get a smaller token after a new one.

The command waits until the new fleet is ready. Ctrl-C leaves the change to the service, which completes it.`

func newFleetSet() *cobra.Command {
	r := &pb.SetFleetRequest{Fleet: &pb.RedisFleet{}}
	var noWait bool
	c := &cobra.Command{Use: "set HOST:PORT...", Short: "Change the Redis nodes that serve the efficiency mode", Long: fleetSetLong,
		Example: "  leased redis fleet set redis1:6379 redis2:6379 redis3:6379\n" +
			"  leased redis fleet set redis4:6379 redis5:6379 redis6:6379 --now",
		Args: cobra.MinimumNArgs(1)}
	a, o := addAccess(c), addOutput(c)
	flags := c.Flags()
	flags.StringVar(&r.Fleet.Namespace, "namespace", "", "how the keys in Redis begin (default: as it is, or "+redlockadapter.DefaultNamespace+")")
	flags.StringVar(&r.Fleet.MaxTtl, "max-ttl", "", "longest TTL of a lease (default: as it is, or "+redlockadapter.DefaultMaxTTL.String()+")")
	flags.BoolVar(&r.Now, "now", false, "do not wait until the leases of the old fleet have ended")
	flags.BoolVar(&r.Force, "force", false, "change although a quorum of the old fleet, which is gone for good, or of the new one cannot be used")
	flags.BoolVar(&noWait, "no-wait", false, "return when the change has begun")
	c.RunE = func(c *cobra.Command, args []string) error {
		for part := range strings.SplitSeq(strings.Join(args, ","), ",") {
			if part = strings.TrimSpace(part); part != "" {
				r.Fleet.Addresses = append(r.Fleet.Addresses, part)
			}
		}
		if err := a.fillFleet(c.Context(), r.Fleet); err != nil {
			return err
		}
		var got *pb.SetFleetResponse
		err := a.onLeader(c.Context(), func(conn *grpc.ClientConn) (err error) {
			got, err = pb.NewRedisServiceClient(conn).SetFleet(c.Context(), r)
			return err
		})
		if err != nil {
			return err
		}
		if noWait {
			return o.say(c, got, "the change of the fleet has begun; see `leased redis status`")
		}
		if err := a.followFleet(c, r.Fleet, got.Version); err != nil {
			return err
		}
		if len(r.Fleet.Addresses) == 1 {
			return o.say(c, got, "1 Redis node serves the efficiency mode")
		}
		return o.say(c, got, "%d Redis nodes serve the efficiency mode", len(r.Fleet.Addresses))
	}
	return c
}

// fillFleet takes what was not given from the present fleet.
func (a *access) fillFleet(ctx context.Context, f *pb.RedisFleet) error {
	present, err := a.fleet(ctx)
	if err != nil {
		return err
	}
	old := present.GetFleet()
	if present.GetNext() != nil {
		old = present.Next
	}
	for _, field := range []struct {
		to                 *string
		present, byDefault string
	}{{&f.Namespace, old.GetNamespace(), redlockadapter.DefaultNamespace}, {&f.MaxTtl, old.GetMaxTtl(), redlockadapter.DefaultMaxTTL.String()}} {
		switch {
		case *field.to != "":
		case field.present != "":
			*field.to = field.present
		default:
			*field.to = field.byDefault
		}
	}
	return nil
}

// followFleet returns when the fleet of a version is in place and ready.
func (a *access) followFleet(c *cobra.Command, want *pb.RedisFleet, version uint64) error {
	return follow(c, "the change of the fleet goes on; see `leased redis status`", func(ctx context.Context) (string, bool, error) {
		got, err := a.fleet(ctx)
		switch {
		case err != nil:
			return "", false, err
		case got.Version < version:
			return "waiting for this member to apply the change", false, nil
		case got.Next == nil && !sameNodes(got.Fleet, want):
			return "", false, fmt.Errorf("another change of the fleet came after this one; see `leased redis fleet show`")
		case got.Next == nil && got.Ready && quorumVotes(got.Nodes):
			return "", true, nil
		}
		return fleetText(got), false, nil
	})
}

func sameNodes(a, b *pb.RedisFleet) bool {
	return slices.Equal(slices.Sorted(slices.Values(a.GetAddresses())), slices.Sorted(slices.Values(b.GetAddresses())))
}

// quorumVotes reports whether a majority of the nodes can grant a lock.
func quorumVotes(nodes []*pb.RedisNode) bool {
	votes := 0
	for _, n := range nodes {
		if n.Error == "" && !n.Empty {
			votes++
		}
	}
	return 2*votes > len(nodes)
}
