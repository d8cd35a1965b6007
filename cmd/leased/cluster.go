package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/lockview"
	"github.com/leased-project/leased/cmd/leased/internal/member"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
)

func setUpClusterStatus(c *cobra.Command) {
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		answers, err := a.statuses(c.Context())
		if err != nil {
			return err
		}
		if o.format != "json" {
			return o.print(c, nil, func(t *tabwriter.Writer) { tableOfCluster(t, newest(answers), answers) })
		}
		for _, id := range slices.Sorted(maps.Keys(answers)) {
			if err := printJSON(c.OutOrStdout(), answers[id], "  "); err != nil {
				return err
			}
		}
		return nil
	}
}

// newest returns the status of the leader, or of another member if none leads: of one that knows the members.
func newest(answers map[string]*pb.StatusResponse) (found *pb.StatusResponse) {
	for _, id := range slices.Sorted(maps.Keys(answers)) {
		if s := answers[id]; found == nil || s.Serves || len(found.Members) == 0 {
			found = s
		}
	}
	return found
}

// statuses returns the status of every endpoint and of all members that these name, by their ids. It asks them
// concurrently, because each one that cannot be reached costs a timeout. It fails if none answers.
func (a *access) statuses(ctx context.Context) (map[string]*pb.StatusResponse, error) {
	addresses, _, _, err := a.service()
	if err != nil {
		return nil, err
	}
	var asking sync.WaitGroup
	var mu sync.Mutex
	var failed error
	answers, asked := map[string]*pb.StatusResponse{}, map[string]bool{"": true}
	var ask func(address string) // the caller holds mu
	ask = func(address string) {
		if asked[address] {
			return
		}
		asked[address] = true
		asking.Go(func() {
			got, err := a.statusOf(ctx, address)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = errors.Join(failed, err)
				return
			}
			answers[got.Id] = got
			for _, m := range got.Members {
				ask(m.ApiAddress)
			}
		})
	}
	mu.Lock()
	for _, address := range addresses {
		ask(address)
	}
	mu.Unlock()
	asking.Wait()
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
	s, err := newAPI(conn).Status(ctx, &pb.StatusRequest{})
	return s, wire.FromStatus(err)
}

func tableOfCluster(t *tabwriter.Writer, newest *pb.StatusResponse, answers map[string]*pb.StatusResponse) {
	if len(newest.Members) == 0 {
		fmt.Fprintf(t, "member %s has not joined a cluster yet\n", newest.Id)
	}
	row(t, "MEMBER", "STATE", "VOTER", "RAFT", "API", "COMMIT", "APPLIED", "LAG", "CHAIN", "TERM", "VERSION")
	for _, m := range newest.Members {
		s, votes := answers[m.Id], "no"
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
		row(t, m.Id, s.State, votes, m.RaftAddress, s.ApiAddress, s.CommitIndex, s.AppliedIndex, lagText(m),
			fmt.Sprintf("%d %.12s", s.ChainIndex, s.ChainHash), s.Term, s.Version)
	}
	fmt.Fprintf(t, "\n%s, %s, %s, %s; last token %d; version %s\n",
		lockview.Count(newest.Locks, "lock"), lockview.Count(newest.Holders, "holder"),
		lockview.Count(newest.Waiters, "waiter"), lockview.Count(newest.Sessions, "session"), newest.LastToken,
		newest.Version)
	largest := newest.LastToken
	for _, n := range newest.Redis {
		largest = max(largest, n.Max)
	}
	if largest > uint64(fencing.DefaultMaxJump/2) {
		fmt.Fprintf(t, "warning: tokens have reached %d, more than half of what a gate admits as the first token of a "+
			"resource; see docs/ALERTS.md\n", largest)
	}
}

// lagText returns the lag of a member, or "" if it is not known.
func lagText(m *pb.Member) string {
	if m.Lag == nil {
		return ""
	}
	return fmt.Sprint(*m.Lag)
}

func setUpClusterJoin(c *cobra.Command) {
	c.Args = exactly(1, "the API address of a member, HOST:PORT")
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		got, err := fetch(c.Context(), a, api.Join, &pb.JoinRequest{Address: args[0]})
		return o.say(c, got, err, "joined the cluster of %s", args[0])
	}
}

func setUpClusterRemove(c *cobra.Command) {
	c.Args = exactly(1, "the id of a member")
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		got, err := fetch(c.Context(), a, api.Remove, &pb.RemoveRequest{Id: args[0]})
		return o.say(c, got, err, "removed member %s", args[0])
	}
}

func setUpClusterTransfer(c *cobra.Command) {
	c.Args = cobra.MaximumNArgs(1)
	a, o := addAccess(c), addOutput(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		got, err := fetch(c.Context(), a, api.Transfer, &pb.TransferRequest{To: strings.Join(args, "")})
		return o.say(c, got, err, "transferred leadership")
	}
}

func setUpClusterRecover(c *cobra.Command) {
	var file string
	var yes bool
	fromEnvironment(c.Flags(), &file, "config", "", "YAML file with the settings")
	c.Flags().BoolVar(&yes, "yes", false, "confirm that the other members are lost for good")
	settings.Flags(c.Flags())
	o := addOutput(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		s, err := settings.Load(c.Flags(), os.LookupEnv, file)
		if err != nil {
			return usageError(err)
		}
		if !yes {
			return usageError(fmt.Errorf("this discards the state of the other members of %s's cluster; confirm with --yes "+
				"that they are lost for good", s.ID))
		}
		floor, err := member.Recover(s, newLogger(s))
		if err != nil {
			return err
		}
		return o.say(c, &pb.RestoreSnapshotResponse{Floor: uint64(floor)}, nil,
			"%s is the only member now, and later tokens are above %d. Start it with `leased serve`, and let others join "+
				"with new ids.", s.ID, floor)
	}
}

// explainNoLeader adds to an error how many members answer, if a call failed because no
// member leads, or because the leader could not commit it. reached is the number of
// endpoints that answered, of given ones.
func (a *access) explainNoLeader(ctx context.Context, err error, reached, given int) error {
	not, noLeader := errors.AsType[*wire.NotLeaderError](err)
	if ctx.Err() != nil || !noLeader && !errors.Is(err, lease.ErrUncertain) {
		return err
	}
	answered, missing := a.countMembers(ctx, reached, given)
	switch {
	case noLeader && missing:
		return &codeError{wire.ExitUnavailable, &wire.NotLeaderError{Text: answered + "; see 'leased cluster status'"}}
	case noLeader && not.Leader == "":
		text := fmt.Sprintf("no leader: %s, and none leads; an election is in progress, or a majority of the members "+
			"is down: try again, or see 'leased cluster status' (needs the right cluster)", answered)
		return &codeError{wire.ExitUnavailable, &wire.NotLeaderError{Text: text}}
	case missing:
		return fmt.Errorf("%w; %s; see 'leased cluster status'", err, answered)
	}
	return err
}

// missingMajority says how many members answer if the leader or a majority is missing, and returns ""
// otherwise.
func (a *access) missingMajority(limit time.Duration) string {
	if a.postgres() != "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if text, missing := a.countMembers(ctx, 0, 0); missing {
		return text + "; see 'leased cluster status'"
	}
	return ""
}

// countMembers says how many of the voters answer, and reports whether the leader or a majority is
// missing. A user without the right cluster cannot see the members. Then countMembers
// counts the endpoints of the command line, which do not show whether a majority answers.
func (a *access) countMembers(ctx context.Context, reached, given int) (text string, missing bool) {
	answers, err := a.statuses(ctx)
	if err != nil || len(newest(answers).Members) == 0 {
		return fmt.Sprintf("%d of %s answered", reached, lockview.Count(given, "endpoint")), false
	}
	voters, answered := 0, 0
	for _, m := range newest(answers).Members {
		if m.Voter {
			voters++
		}
		if m.Voter && answers[m.Id] != nil {
			answered++
		}
	}
	text = fmt.Sprintf("%d of %s answered", answered, lockview.Count(voters, "member"))
	for _, s := range answers {
		if s.Leader != "" && answers[s.Leader] == nil {
			return fmt.Sprintf("%s; member %s leads, and cannot be reached from here", text, s.Leader), true
		}
	}
	if majority := voters/2 + 1; answered < majority {
		return fmt.Sprintf("no leader: %s; a majority (%d) is needed", text, majority), true
	}
	return text, false
}
