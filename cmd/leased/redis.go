package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/redisaccess"
)

func newRedis() *cobra.Command {
	c := &cobra.Command{Use: "redis", Short: "Show and change the Redis nodes of efficiency mode", Args: cobra.NoArgs}
	c.AddCommand(newRedisStatus(), newRedisFleet(), newRedisInit())
	return c
}

func newRedisStatus() *cobra.Command {
	c := &cobra.Command{Use: "status", Short: "Show the state of the Redis nodes, as seen by the member at --endpoint",
		Long: "Show the state of the Redis nodes, as seen by the member at --endpoint. A node votes while it has its data.\n" +
			"A node that was restarted or emptied is empty: the service assigns it a new range of tokens, and it votes\n" +
			"again after the longest TTL. MAX is the largest token that a node has accepted; it accepts tokens above\n" +
			"FLOOR, up to CEILING, from clients with VERSION of the policies. SKEW is the difference between the clocks\n" +
			"of the node and the member.", Args: cobra.NoArgs}
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
			row(t, "NODE", "STATE", "VERSION", "MAX", "FLOOR", "CEILING", "SKEW")
			for _, n := range got.Nodes {
				row(t, n.Address, stateOf(n), number(n.Version), number(n.Max), number(n.Floor), number(n.Ceiling), n.Skew)
			}
			fmt.Fprintf(t, "\n%s\n", fleetText(got))
		})
	}
	return c
}

var errNoFleet = fmt.Errorf("the service has no Redis nodes, and so no efficiency mode; add them with `leased redis fleet set HOST:PORT...`")

// fleet returns the fleet, from any member.
func (a *access) fleet(ctx context.Context) (*pb.GetFleetResponse, error) {
	return fetch(ctx, a, pb.NewRedisServiceClient, pb.RedisServiceClient.GetFleet, &pb.GetFleetRequest{})
}

// leaderFleet returns the fleet from the leader, which also knows what it waits for.
func (a *access) leaderFleet(ctx context.Context) (got *pb.GetFleetResponse, err error) {
	err = a.call(ctx, func(conn *grpc.ClientConn) error {
		// Any member answers GetFleet; this call fails unless the member is the leader.
		if _, err := pb.NewPolicyServiceClient(conn).ListPolicies(ctx, &pb.ListPoliciesRequest{}); err != nil {
			return err
		}
		got, err = pb.NewRedisServiceClient(conn).GetFleet(ctx, &pb.GetFleetRequest{})
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
	case n.Empty && n.Quarantine != "":
		return "empty, votes in " + roundText(n.Quarantine)
	case n.Empty:
		return "empty"
	case n.Unnamed && n.Quarantine != "":
		return "another run of the server, votes in " + roundText(n.Quarantine)
	case n.Unnamed:
		return "another run of the server"
	}
	return "votes"
}

// deniesAccess reports whether a node answered but rejected the credentials.
func deniesAccess(text string) bool {
	return slices.ContainsFunc([]string{"WRONGPASS", "NOAUTH", "NOPERM"}, func(code string) bool { return strings.Contains(text, code) })
}

// oneLine joins the lines of a text, such as those of joined errors.
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
	text := fmt.Sprintf("%s, namespace %s, longest TTL %s; version %d, ceiling %d", count(len(f.Fleet.GetAddresses()), "node"),
		f.Fleet.GetNamespace(), f.Fleet.GetMaxTtl(), f.Version, f.Ceiling)
	switch {
	case f.Next != nil:
		text += "; changing to " + strings.Join(f.Next.Addresses, " ")
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

// count formats a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// redisFlags are the flags of a command that connects to Redis itself.
type redisFlags struct{ nodes redisaccess.Nodes }

// addRedisAccess adds the flags to a command. The password comes from the
// environment or a file, never from a flag.
func addRedisAccess(c *cobra.Command) *redisFlags {
	f := &redisFlags{}
	flags, n := c.Flags(), &f.nodes
	flags.StringVar(&n.User, "redis-user", fromEnv("LEASED_REDIS_USER", ""), "ACL user on the Redis nodes (LEASED_REDIS_USER)")
	flags.StringVar(&n.PasswordFile, "redis-password-file", fromEnv("LEASED_REDIS_PASSWORD_FILE", ""),
		"file with the password of the Redis nodes (LEASED_REDIS_PASSWORD_FILE, or the password itself in "+redisaccess.PasswordVariable+")")
	flags.BoolVar(&n.TLS, "redis-tls", isTrue("LEASED_REDIS_TLS"), "encrypt the connections to the Redis nodes (LEASED_REDIS_TLS)")
	flags.StringVar(&n.CA, "redis-tls-ca", fromEnv("LEASED_REDIS_TLS_CA", ""), "PEM file with the CA of the Redis nodes' certificates (LEASED_REDIS_TLS_CA)")
	flags.StringVar(&n.Cert, "redis-tls-cert", fromEnv("LEASED_REDIS_TLS_CERT", ""), "PEM file with your certificate, if the Redis nodes require one (LEASED_REDIS_TLS_CERT)")
	flags.StringVar(&n.Key, "redis-tls-key", fromEnv("LEASED_REDIS_TLS_KEY", ""), "PEM file with the key of that certificate (LEASED_REDIS_TLS_KEY)")
	flags.BoolVar(&n.Insecure, "redis-insecure", isTrue("LEASED_REDIS_INSECURE"), "allow sending the password unencrypted to another host (LEASED_REDIS_INSECURE)")
	return f
}

// isTrue returns the default of a flag. access reports invalid values.
func isTrue(variable string) bool {
	on, _ := strconv.ParseBool(fromEnv(variable, "false"))
	return on
}

// access checks the flags and reads the files.
func (f *redisFlags) access() (*redisaccess.Nodes, error) {
	for _, variable := range []string{"LEASED_REDIS_TLS", "LEASED_REDIS_INSECURE"} {
		if value := fromEnv(variable, "false"); value != "" {
			if _, err := strconv.ParseBool(value); err != nil {
				return nil, usageError(fmt.Errorf("%s (%s) must be true or false", variable, value))
			}
		}
	}
	f.nodes.Password = fromEnv(redisaccess.PasswordVariable, "")
	if setting, rule := f.nodes.Broken("redis-"); rule != "" {
		return nil, usageError(fmt.Errorf("%s %s", setting, rule))
	}
	if err := f.nodes.CheckFiles(); err != nil {
		return nil, usageError(err)
	}
	return &f.nodes, nil
}
