package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
)

func newSign() *cobra.Command {
	c := &cobra.Command{Use: "sign RESOURCE --token TOKEN", Short: "Print the signed token of a lease",
		Long: "Print the signed token of a lease that is held, for gates that verify signatures. Gates accept it until\n" +
			"signature-ttl of the service has passed; sign again before that. The members need a signing key (leased keys).",
		Example: "  leased sign account/7 --token 12"}
	return leaseCommand(c, func(c *cobra.Command, a *access, o *output, resource string, token uint64) error {
		got, err := a.sign(c.Context(), resource, token)
		if err != nil {
			return err
		}
		return o.say(c, got, "%s", got.SignedToken)
	})
}

func (a *access) sign(ctx context.Context, resource string, token uint64) (*pb.SignResponse, error) {
	return fetch(ctx, a, pb.NewLeaseServiceClient, pb.LeaseServiceClient.Sign, &pb.SignRequest{Resource: resource, Token: token})
}

// printSigned prints a new lease with its signed token. If the token cannot be
// signed, the lease is released.
func printSigned(ctx context.Context, c *cobra.Command, a *access, o *output, got *pb.AcquireResponse) error {
	signed, err := a.sign(ctx, got.Resource, got.Token)
	if err != nil {
		_, released := fetch(context.WithoutCancel(ctx), a, pb.NewLeaseServiceClient, pb.LeaseServiceClient.Release,
			&pb.ReleaseRequest{Resource: got.Resource, Token: got.Token})
		return errors.Join(err, released)
	}
	if o.format == "json" {
		object := plain(got.ProtoReflect())
		object["signedToken"] = signed.SignedToken
		encoder := json.NewEncoder(c.OutOrStdout())
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(object)
	}
	if err := o.print(c.OutOrStdout(), got, func(t *tabwriter.Writer) { acquiredRows(t, got) }); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "\nSIGNED TOKEN\n%s\n", signed.SignedToken)
	return err
}
