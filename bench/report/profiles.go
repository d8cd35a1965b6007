package main

import (
	"fmt"

	"github.com/leased-project/leased/bench/results"
)

// shareColumns are the columns of the table of profiles.
var shareColumns = []struct{ figure, title string }{
	{results.SystemShare, "system calls"}, {results.RuntimeShare, "Go runtime: scheduler, memory, locks"},
	{results.GRPCShare, "gRPC and network"},
	{results.ProtobufShare, "protobuf"}, {results.RaftShare, "Raft library and log"}, {results.LeasedShare, "leased"},
	{results.OtherShare, "other"},
}

// profileTable returns the shares of the layers in the processor time of each process.
func (s *summary) profileTable() string {
	head := "process | workers"
	for _, c := range shareColumns {
		head += " | " + c.title
	}
	var rows [][]string
	for _, process := range []string{"client", "leader", "follower"} {
		for _, m := range s.samples {
			if m.Work != results.Profile || m.Target != process {
				continue
			}
			cells := []string{process, fmt.Sprint(m.Params["workers"])}
			for _, c := range shareColumns {
				cells = append(cells, fmt.Sprintf("%.0f %%", 100*m.Figures[c.figure]))
			}
			rows = append(rows, cells)
		}
	}
	return markdown(head, rows)
}
