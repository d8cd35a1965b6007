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
	c := &cobra.Command{Use: "recover --yes", Short: "Make the member in --data, stopped, the only one of its cluster",
		Long: "What remains when a majority of the members is lost for good: the member in --data, which must not\n" +
			"run, becomes the only one of its cluster. Give it the settings that it is served with.\n\n" +
			"What the lost members had acknowledged and this one has not is gone. All sessions end. All later tokens are\n" +
			"larger by at least 2^32 than any that this member knows, so that gates refuse the lost ones. The lost\n" +
			"members must not run again with their old folders: empty them, and let them join under new names.",
		Args: cobra.NoArgs}
	c.Flags().StringVar(&file, "config", fromEnv("LEASED_CONFIG", ""), "YAML file with settings (LEASED_CONFIG)")
	c.Flags().BoolVar(&yes, "yes", false, "yes, the other members are lost for good")
	settings.Flags(c.Flags())
	o := addOutput(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		s, err := settings.Load(c.Flags(), os.LookupEnv, file)
		if err != nil {
			return usageError(err)
		}
		if !yes {
			return usageError(fmt.Errorf("this gives up what the other members of %s's cluster know; say --yes if they are lost for good", s.ID))
		}
		floor, err := member.Recover(s, newLogger(s))
		if err != nil {
			return err
		}
		return o.say(c, &pb.RestoreSnapshotResponse{Floor: uint64(floor)},
			"%s is the only member now; tokens go on above %d. Start it with leased serve, and let others join under new names.", s.ID, floor)
	}
	return c
}
