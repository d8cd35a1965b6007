package main

import (
	"fmt"
	"strings"

	"github.com/leased-project/leased/bench/results"
)

// shareColumns are the columns of the table of profiles.
var shareColumns = []struct{ figure, title string }{
	{results.SystemShare, "system calls"}, {results.RuntimeShare, "Go runtime: scheduler, memory, locks"}, {results.GRPCShare, "gRPC and network"},
	{results.ProtobufShare, "protobuf"}, {results.RaftShare, "Raft library and log"}, {results.LeasedShare, "leased"}, {results.OtherShare, "other"},
}

// profileTable returns the shares of the layers in the processor time of each process.
func (s *summary) profileTable() string {
	var out strings.Builder
	out.WriteString("| process | workers |")
	for _, c := range shareColumns {
		fmt.Fprintf(&out, " %s |", c.title)
	}
	out.WriteString("\n|---|---" + strings.Repeat("|---", len(shareColumns)) + "|\n")
	rows := 0
	for _, process := range []string{"client", "leader", "follower"} {
		for _, run := range s.runs {
			for _, m := range run.Samples {
				if m.Work != results.Profile || m.Target != process {
					continue
				}
				rows++
				fmt.Fprintf(&out, "| %s | %d |", process, m.Params["workers"])
				for _, c := range shareColumns {
					fmt.Fprintf(&out, " %.0f %% |", 100*m.Figures[c.figure])
				}
				out.WriteString("\n")
			}
		}
	}
	if rows == 0 {
		return "Not measured in these results.\n"
	}
	return out.String()
}
