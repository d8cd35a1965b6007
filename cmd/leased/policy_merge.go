package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/wire"
)

// mergeAttempts bounds the retries when others change the topology between read
// and write.
const mergeAttempts = 5

// policyTimings are the flags of policy set with a duration.
var policyTimings = []string{"ttl", "renew", "drift", "lock-delay"}

var errModeMissing = errors.New("--mode is required: efficiency or correctness")

// setPolicy sets a policy. Fields that the flags do not give keep the values of the
// existing policy. It fills in p.
func (a *access) setPolicy(c *cobra.Command, p *pb.Policy, now bool) (got *pb.SetPolicyResponse, err error) {
	given := &pb.Policy{Prefix: p.Prefix, Mode: p.Mode, Ttl: p.Ttl, Renew: p.Renew, Drift: p.Drift, LockDelay: p.LockDelay}
	err = a.call(c.Context(), func(conn *grpc.ClientConn) error {
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
			if !errors.Is(why, wire.ErrOutdated) || errors.Is(why, lease.ErrUncertain) || try == mergeAttempts {
				return err
			}
		}
	})
	return got, err
}

// merge fills p with the given fields, and the rest from the existing policy for
// the same prefix.
func merge(p, given *pb.Policy, all []*pb.Policy, changed func(flag string) bool) error {
	old := &pb.Policy{}
	for _, other := range all {
		if other.Prefix == given.Prefix {
			old = other
		}
	}
	p.Mode = cmp.Or(given.Mode, old.Next, old.Mode)
	if p.Mode == "" {
		return usageError(fmt.Errorf("%s* has no policy yet: %w", given.Prefix, errModeMissing))
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
