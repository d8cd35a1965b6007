package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/lockview"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/redlockadapter"
)

func setUpRedisStatus(c *cobra.Command) {
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		got, err := someFleet(a.fleet(c.Context()))
		if err != nil {
			return err
		}
		return o.print(c, got, func(t *tabwriter.Writer) {
			row(t, "NODE", "STATE", "VERSION", "MAX", "FLOOR", "CEILING", "SKEW")
			for _, n := range got.Nodes {
				row(t, n.Address, stateOf(n), number(n.Version), number(n.Max), number(n.Floor), number(n.Ceiling), n.Skew)
			}
			fmt.Fprintf(t, "\n%s\n", fleetText(got))
		})
	}
}

var errNoFleet = errors.New("the service has no Redis nodes, and so no efficiency mode; " +
	"add them with `leased redis fleet set HOST:PORT...`")

// someFleet returns the fleet of an answer, or errNoFleet if the service has none.
func someFleet(got *pb.GetFleetResponse, err error) (*pb.GetFleetResponse, error) {
	if err == nil && len(got.GetFleet().GetAddresses()) == 0 {
		err = errNoFleet
	}
	return got, err
}

// fleet returns the fleet, from any member. Only the leader can say that there is none: another member may not have
// applied its log yet.
func (a *access) fleet(ctx context.Context) (*pb.GetFleetResponse, error) {
	got, err := fetch(ctx, a, api.GetFleet, &pb.GetFleetRequest{})
	if err == nil && len(got.GetFleet().GetAddresses()) == 0 {
		return a.leaderFleet(ctx)
	}
	return got, err
}

// leaderFleet returns the fleet from the leader, which also knows what it waits for.
func (a *access) leaderFleet(ctx context.Context) (got *pb.GetFleetResponse, err error) {
	err = a.call(ctx, func(service api) error {
		// Any member answers GetFleet; this call fails unless the member is the leader.
		if _, err = service.ListPolicies(ctx, &pb.ListPoliciesRequest{}); err == nil {
			got, err = service.GetFleet(ctx, &pb.GetFleetRequest{})
		}
		return err
	})
	return got, err
}

// stateOf describes the state of a node.
func stateOf(n *pb.RedisNode) string {
	switch {
	case deniesAccess(n.Error):
		return "access denied: " + oneLine(n.Error)
	case n.Error != "":
		return "unreachable: " + oneLine(n.Error)
	case !n.Empty && !n.Unnamed:
		return "votes"
	}
	state := "another run of the server"
	if n.Empty {
		state = "empty"
	}
	if n.Quarantine != "" {
		state += ", votes in " + roundText(n.Quarantine)
	}
	return state
}

// deniesAccess reports whether a node answered but rejected the credentials.
func deniesAccess(text string) bool {
	return strings.Contains(text, "WRONGPASS") || strings.Contains(text, "NOAUTH") || strings.Contains(text, "NOPERM")
}

// oneLine joins the lines of a text, such as the text of joined errors.
func oneLine(text string) string {
	return strings.Join(strings.Split(strings.TrimSpace(text), "\n"), "; ")
}

// roundText rounds a duration of the API.
func roundText(text string) string {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return text
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// fleetText describes the fleet in one line.
func fleetText(f *pb.GetFleetResponse) string {
	text := fmt.Sprintf("%s, namespace %s, longest TTL %s; version %d, ceiling %d",
		lockview.Count(len(f.Fleet.GetAddresses()), "node"), f.Fleet.GetNamespace(), f.Fleet.GetMaxTtl(), f.Version,
		f.Ceiling)
	switch {
	case f.Next != nil:
		text += "; changing to " + cmp.Or(strings.Join(f.Next.Addresses, " "), "no nodes")
	case f.Ready && quorumVotes(f.Nodes):
		text += "; ready"
	default:
		text += "; not ready"
	}
	if f.WaitingFor != "" {
		text += "; waiting for: " + f.WaitingFor
	}
	return text
}

// addRedisAccess adds the flags of addAccess, and those of a command that connects to Redis itself. The password
// comes from the environment or a file, never from a flag.
func addRedisAccess(c *cobra.Command) *access {
	settings.RedisFlags(c.Flags())
	return addAccess(c)
}

// redisNodes returns how to connect to Redis nodes, after it has checked the flags and the files, and that they allow
// connections to these addresses.
func (a *access) redisNodes(addresses ...string) (*settings.RedisNodes, error) {
	nodes, err := settings.LoadRedis(a.flags, os.LookupEnv)
	if err == nil {
		err = nodes.Check(addresses)
	}
	if err != nil {
		return nil, usageError(err)
	}
	return nodes, nil
}

func setUpFleetSet(c *cobra.Command) {
	r := &pb.SetFleetRequest{Fleet: &pb.RedisFleet{}}
	var noWait bool
	c.Args = atLeast(1, "the addresses of the Redis nodes, HOST:PORT")
	a, o := addAccess(c), addOutput(c)
	flags := c.Flags()
	flags.StringVar(&r.Fleet.Namespace, "namespace", "",
		"prefix of the keys in Redis (default: unchanged, or "+redlockadapter.DefaultNamespace+")")
	flags.StringVar(&r.Fleet.MaxTtl, "max-ttl", "",
		"longest TTL of a lease (default: unchanged, or "+redlockadapter.DefaultMaxTTL.String()+")")
	flags.BoolVar(&r.Now, "now", false, "do not wait until the leases of the old fleet have expired")
	flags.BoolVar(&r.Force, "force", false, "change even if a quorum of the old fleet (lost for good) or of the new "+
		"fleet cannot be reached")
	flags.BoolVar(&noWait, "no-wait", false, "return when the change has started")
	c.RunE = func(c *cobra.Command, args []string) error {
		r.Fleet.Addresses = settings.Split(strings.Join(args, ","))
		if len(r.Fleet.Addresses) == 0 { // as from an unset variable; with --force it would remove the fleet
			return usageError(errors.New("HOST:PORT is empty; to end efficiency mode, use `leased redis fleet remove`"))
		}
		if err := a.fillFleet(c.Context(), r.Fleet); err != nil {
			return err
		}
		got, err := fetch(c.Context(), a, api.SetFleet, r)
		if err != nil {
			return err
		}
		if noWait {
			return o.say(c, got, nil, "the change of the fleet has started; see `leased redis status`")
		}
		voting, err := a.followFleet(c, r.Fleet, got.Version)
		switch all := len(r.Fleet.Addresses); {
		case all == 1:
			return o.say(c, got, err, "1 Redis node serves efficiency mode")
		case voting < all:
			return o.say(c, got, err, "%d of %d Redis nodes serve efficiency mode; `leased redis status` shows the others",
				voting, all)
		default:
			return o.say(c, got, err, "%d Redis nodes serve efficiency mode", all)
		}
	}
}

func setUpFleetRemove(c *cobra.Command) {
	r, noWait := &pb.SetFleetRequest{Fleet: &pb.RedisFleet{}, Force: true}, false
	a, o := addAccess(c), addOutput(c)
	force := c.Flags().Bool("force", false, "do not wait for migrations, because the nodes are gone for good")
	c.Flags().BoolVar(&r.Now, "now", false, "do not wait until the leases of the nodes have expired")
	c.Flags().BoolVar(&noWait, "no-wait", false, "return when the removal has started")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if _, err := someFleet(a.leaderFleet(c.Context())); err != nil {
			return err
		}
		policies, err := fetch(c.Context(), a, api.ListPolicies, &pb.ListPoliciesRequest{})
		if err != nil {
			return readError(err)
		}
		if !*force && len(policies.Migrations) > 0 {
			return fmt.Errorf("%w: the locks of %q are migrating; wait until `leased policy show` lists no migration, or use "+
				"--force if the Redis nodes are gone for good", lease.ErrInvalid, policies.Migrations[0].Prefix)
		}
		got, err := fetch(c.Context(), a, api.SetFleet, r)
		if err != nil {
			return err
		}
		if noWait {
			return o.say(c, got, nil, "the removal of the Redis nodes has started; see `leased redis status`")
		}
		_, err = a.followFleet(c, r.Fleet, got.Version)
		return o.say(c, got, err, "removed the Redis nodes: the service has no efficiency mode now")
	}
}

// fillFleet fills the fields that were not given from the current fleet.
func (a *access) fillFleet(ctx context.Context, f *pb.RedisFleet) error {
	current, err := a.leaderFleet(ctx)
	if err != nil {
		return err
	}
	old := current.GetFleet()
	if len(current.GetNext().GetAddresses()) > 0 {
		old = current.Next
	}
	f.Namespace = cmp.Or(f.Namespace, old.GetNamespace(), redlockadapter.DefaultNamespace)
	f.MaxTtl = cmp.Or(f.MaxTtl, old.GetMaxTtl(), redlockadapter.DefaultMaxTTL.String())
	return nil
}

// followFleet returns when the fleet of a version is ready, with the number of its nodes that vote.
func (a *access) followFleet(c *cobra.Command, want *pb.RedisFleet, version uint64) (voting int, err error) {
	const interrupted = "the change of the fleet continues; see `leased redis status`"
	err = follow(c, interrupted, func(ctx context.Context) (step, bool, error) {
		got, err := a.fleet(ctx)
		switch {
		case err != nil:
			return step{}, false, err
		case got.Version < version:
			return step{text: "waiting for this member to apply the change"}, false, nil
		case got.Next == nil && !sameNodes(got.Fleet, want):
			return step{}, false, fmt.Errorf("a later change has replaced this one; see `leased redis fleet show`")
		case got.Next == nil && (len(want.Addresses) == 0 || got.Ready && quorumVotes(got.Nodes)):
			voting = votes(got.Nodes)
			return step{}, true, nil
		}
		return newStep(fleetText(got)), false, nil
	})
	return voting, err
}

func sameNodes(a, b *pb.RedisFleet) bool {
	return slices.Equal(slices.Sorted(slices.Values(a.GetAddresses())), slices.Sorted(slices.Values(b.GetAddresses())))
}

// quorumVotes reports whether a quorum of the nodes votes.
func quorumVotes(nodes []*pb.RedisNode) bool { return 2*votes(nodes) > len(nodes) }

// votes returns the number of nodes that vote.
func votes(nodes []*pb.RedisNode) (voting int) {
	for _, n := range nodes {
		if n.Error == "" && !n.Empty && !n.Unnamed {
			voting++
		}
	}
	return voting
}
