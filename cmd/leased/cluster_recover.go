package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/member"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
)

func newClusterRecover() *cobra.Command {
	var file string
	var yes bool
	c := &cobra.Command{Use: "recover --yes", Short: "Make a stopped member the only member of its cluster, after a majority is lost for good",
		Long: "Make the stopped member in --data the only member of its cluster. Use it only if a majority of the members\n" +
			"is lost for good. Give the same settings as for `leased serve`.\n\n" +
			"Changes that only the lost members have are gone. All sessions end. Later tokens are larger by at least\n" +
			"2^32 than any that this member knows, so that gates refuse the lost ones. Do not start the lost members\n" +
			"with their old data folders: empty the folders, and let the members join with new ids.",
		Args: cobra.NoArgs}
	c.Flags().StringVar(&file, "config", fromEnv("LEASED_CONFIG", ""), "YAML file with the settings (LEASED_CONFIG)")
	c.Flags().BoolVar(&yes, "yes", false, "confirm that the other members are lost for good")
	settings.Flags(c.Flags())
	o := addOutput(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		s, err := settings.Load(c.Flags(), os.LookupEnv, file)
		if err != nil {
			return usageError(err)
		}
		if !yes {
			return usageError(fmt.Errorf("this discards the state of the other members of %s's cluster; confirm with --yes that they are lost for good", s.ID))
		}
		floor, err := member.Recover(s, newLogger(s))
		if err != nil {
			return err
		}
		return o.say(c, &pb.RestoreSnapshotResponse{Floor: uint64(floor)},
			"%s is the only member now, and later tokens are above %d. Start it with `leased serve`, and let others join with new ids.", s.ID, floor)
	}
	return c
}
