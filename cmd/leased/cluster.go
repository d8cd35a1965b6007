package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/remote/wire"
)

func newCluster() *cobra.Command {
	c := &cobra.Command{Use: "cluster", Short: "Show and change the members of the cluster", Args: cobra.NoArgs}
	c.AddCommand(newClusterStatus(), newClusterJoin(), newClusterRemove(), newClusterTransfer(), newClusterRecover())
	return c
}

func newClusterStatus() *cobra.Command {
	c := &cobra.Command{Use: "status", Short: "Show the members and their state", Args: cobra.NoArgs,
		Long: "Show all members, with the state of those that can be reached. LAG is the number of log entries of the\n" +
			"leader that a member does not have yet. Members with the same CHAIN index must have the same hash."}
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		answers, err := a.statuses(c.Context())
		if err != nil {
			return err
		}
		newest := answers[0]
		for _, s := range answers {
			if s.Serves {
				newest = s
			}
		}
		if o.format == "json" {
			for _, s := range answers {
				if err := printJSON(c.OutOrStdout(), s, "  "); err != nil {
					return err
				}
			}
			return nil
		}
		return o.print(c.OutOrStdout(), newest, func(t *tabwriter.Writer) { tableOfCluster(t, newest, answers) })
	}
	return c
}

// statuses returns the status of every endpoint and of all members that these
// name. It fails if none answers.
func (a *access) statuses(ctx context.Context) ([]*pb.StatusResponse, error) {
	addresses, err := a.endpoints()
	if err != nil {
		return nil, err
	}
	var answers []*pb.StatusResponse
	known := map[string]bool{}
	var failed error
	for i := 0; i < len(addresses); i++ {
		s, err := a.statusOf(ctx, addresses[i])
		if err != nil {
			failed = err
			continue
		}
		if !known[s.Id] {
			known[s.Id] = true
			answers = append(answers, s)
		}
		for _, m := range s.Members {
			if m.ApiAddress != "" && !slices.Contains(addresses, m.ApiAddress) {
				addresses = append(addresses, m.ApiAddress)
			}
		}
	}
	if len(answers) == 0 {
		return nil, failed
	}
	return answers, nil
}

func (a *access) statusOf(ctx context.Context, address string) (*pb.StatusResponse, error) {
	conn, err := a.connect(ctx, address, connectTimeout)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	s, err := pb.NewClusterServiceClient(conn).Status(ctx, &pb.StatusRequest{})
	return s, wire.FromStatus(err)
}

func tableOfCluster(t *tabwriter.Writer, newest *pb.StatusResponse, answers []*pb.StatusResponse) {
	if len(newest.Members) == 0 {
		fmt.Fprintf(t, "member %s has not joined a cluster yet\n", newest.Id)
	}
	row(t, "MEMBER", "STATE", "VOTER", "RAFT", "API", "COMMIT", "APPLIED", "LAG", "CHAIN", "TERM", "VERSION")
	for _, m := range newest.Members {
		var s *pb.StatusResponse
		for _, answer := range answers {
			if answer.Id == m.Id {
				s = answer
			}
		}
		votes := "no"
		if m.Voter {
			votes = "yes"
		}
		if s == nil {
			state := "unreachable"
			switch {
			case m.WentBack:
				state = "went back"
			case m.Leader:
				state = "leader"
			}
			row(t, m.Id, state, votes, m.RaftAddress, m.ApiAddress, "", "", lagText(m), "", "", "")
			continue
		}
		row(t, m.Id, s.State, votes, m.RaftAddress, s.ApiAddress, s.CommitIndex, s.AppliedIndex, lagText(m), fmt.Sprintf("%d %.12s", s.ChainIndex, s.ChainHash), s.Term, s.Version)
	}
	fmt.Fprintf(t, "\n%s, %s, %s, %s; last token %d; version %s\n", count(int(newest.Locks), "lock"), count(int(newest.Holders), "holder"),
		count(int(newest.Waiters), "waiter"), count(int(newest.Sessions), "session"), newest.LastToken, newest.Version)
}

// lagText returns the lag of a member, or "" if it is not known.
func lagText(m *pb.Member) string {
	if m.Lag == nil {
		return ""
	}
	return fmt.Sprint(*m.Lag)
}

func newClusterJoin() *cobra.Command {
	c := &cobra.Command{Use: "join ADDRESS", Short: "Make the new member at --endpoint join a cluster; ADDRESS is the API of one of its members",
		Example: "  leased cluster join 10.0.0.1:7420 --endpoint 10.0.0.4:7420", Args: exactly(1, "the API address of a member, HOST:PORT")}
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		got, err := fetch(c.Context(), a, pb.NewClusterServiceClient, pb.ClusterServiceClient.Join, &pb.JoinRequest{Address: args[0]})
		if err != nil {
			return err
		}
		return o.say(c, got, "joined the cluster of %s", args[0])
	}
	return c
}

func newClusterRemove() *cobra.Command {
	c := &cobra.Command{Use: "remove MEMBER", Short: "Remove a member from the cluster",
		Long: "Remove a member from the cluster. Stop it first if it is running. Its data folder cannot be used again:\n" +
			"empty it before the member joins again.", Args: exactly(1, "the id of a member")}
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		got, err := fetch(c.Context(), a, pb.NewClusterServiceClient, pb.ClusterServiceClient.Remove, &pb.RemoveRequest{Id: args[0]})
		if err != nil {
			return err
		}
		return o.say(c, got, "removed member %s", args[0])
	}
	return c
}

func newClusterTransfer() *cobra.Command {
	c := &cobra.Command{Use: "transfer [MEMBER]", Short: "Transfer leadership to a member, by default to the most up-to-date one", Args: cobra.MaximumNArgs(1)}
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		got, err := fetch(c.Context(), a, pb.NewClusterServiceClient, pb.ClusterServiceClient.Transfer, &pb.TransferRequest{To: strings.Join(args, "")})
		if err != nil {
			return err
		}
		return o.say(c, got, "transferred leadership")
	}
	return c
}
