package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/wire"
)

// mergeTries is how often a policy is read and set while others change the
// topology in between.
const mergeTries = 5

// policyTimings are the flags of policy set that have a timing.
var policyTimings = []string{"ttl", "renew", "drift", "lock-delay"}

var errModeMissing = errors.New("mode must be given: efficiency or correctness")

// setPolicy sets a policy, and keeps what the flags do not give of the one that
// is there. It fills in p.
func (a *access) setPolicy(c *cobra.Command, p *pb.Policy, now bool) (got *pb.SetPolicyResponse, err error) {
	given := &pb.Policy{Prefix: p.Prefix, Mode: p.Mode, Ttl: p.Ttl, Renew: p.Renew, Drift: p.Drift, LockDelay: p.LockDelay}
	err = a.onLeader(c.Context(), func(conn *grpc.ClientConn) error {
		policies := pb.NewPolicyServiceClient(conn)
		for try := 1; ; try++ {
			all, err := policies.ListPolicies(c.Context(), &pb.ListPoliciesRequest{})
			if err != nil {
				return err
			}
			if err := merge(p, given, all.Policies, c.Flags().Changed); err != nil {
				return err
			}
			got, err = policies.SetPolicy(c.Context(), &pb.SetPolicyRequest{Policy: p, Version: all.Version, Now: now})
			why := wire.FromStatus(err)
			if !errors.Is(why, wire.ErrOutdated) || errors.Is(why, lease.ErrUncertain) || try == mergeTries {
				return err
			}
		}
	})
	return got, err
}

// merge makes p the policy that is given, with the fields that are not given of
// the policy for the same prefix.
func merge(p, given *pb.Policy, all []*pb.Policy, changed func(flag string) bool) error {
	old := &pb.Policy{}
	for _, other := range all {
		if other.Prefix == given.Prefix {
			old = other
		}
	}
	p.Mode = given.Mode
	if p.Mode == "" {
		p.Mode = old.Mode
		if old.Next != "" {
			p.Mode = old.Next
		}
	}
	if p.Mode == "" {
		return usageError(fmt.Errorf("there is no policy for %s* yet: %w", given.Prefix, errModeMissing))
	}
	for i, field := range []struct {
		to         *string
		given, old string
	}{{&p.Ttl, given.Ttl, old.Ttl}, {&p.Renew, given.Renew, old.Renew}, {&p.Drift, given.Drift, old.Drift}, {&p.LockDelay, given.LockDelay, old.LockDelay}} {
		if *field.to = field.given; !changed(policyTimings[i]) {
			*field.to = field.old
		}
	}
	if p.Mode == "efficiency" && !changed("lock-delay") {
		p.LockDelay = ""
	}
	return nil
}
