package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/wire"
)

// explainNoLeader adds to an error how many members answer, if a call failed because no
// member leads, or because the leader could not commit it. reached is the number of
// endpoints that answered, of given ones.
func (a *access) explainNoLeader(ctx context.Context, err error, reached, given int) error {
	var not *wire.NotLeaderError
	noLeader := errors.As(err, &not)
	if ctx.Err() != nil || !noLeader && !errors.Is(err, lease.ErrUncertain) {
		return err
	}
	answered, missing := a.countMembers(ctx, reached, given)
	switch {
	case noLeader && missing:
		return &codeError{wire.ExitUnavailable, &wire.NotLeaderError{Text: fmt.Sprintf("no leader: %s; see 'leased cluster status'", answered)}}
	case noLeader && not.Leader == "":
		return &codeError{wire.ExitUnavailable, &wire.NotLeaderError{Text: fmt.Sprintf("no leader: %s, and none leads; an election is in progress, or a majority of the members is down: try again, or see 'leased cluster status' (needs the right cluster)", answered)}}
	case missing:
		return fmt.Errorf("%w; %s; see 'leased cluster status'", err, answered)
	}
	return err
}

// missingMajority says how many members answer if a majority is missing, and returns ""
// otherwise.
func (a *access) missingMajority() string {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	if text, missing := a.countMembers(ctx, 0, 0); missing {
		return text + "; see 'leased cluster status'"
	}
	return ""
}

// countMembers says how many of the voters answer, and reports whether a majority is
// missing. A user without the right cluster cannot see the members. Then countMembers
// counts the endpoints of the command line, which do not show whether a majority answers.
func (a *access) countMembers(ctx context.Context, reached, given int) (text string, missing bool) {
	answers, err := a.statuses(ctx)
	if err != nil || len(answers[0].Members) == 0 {
		return fmt.Sprintf("%d of %s answered", reached, count(given, "endpoint")), false
	}
	voters, answered := 0, 0
	for _, m := range answers[0].Members {
		if !m.Voter {
			continue
		}
		voters++
		for _, s := range answers {
			if s.Id == m.Id {
				answered++
			}
		}
	}
	text = fmt.Sprintf("%d of %s answered", answered, count(voters, "member"))
	if majority := voters/2 + 1; answered < majority {
		return fmt.Sprintf("%s; a majority (%d) is needed", text, majority), true
	}
	return text, false
}
