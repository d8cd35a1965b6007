package work

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/leased-project/leased/bench/results"
)

// layer is a part of the code, by the beginnings of the names of its functions.
type layer struct {
	figure   string
	prefixes []string
}

// layers are tried in this order. The rest is results.OtherShare.
var layers = []layer{
	{results.SystemShare, []string{"syscall.", "internal/runtime/syscall", "runtime/internal/syscall", "runtime.futex",
		"runtime.epoll", "runtime.usleep", "golang.org/x/sys/"}},
	{results.RuntimeShare, []string{"runtime.", "runtime/", "internal/runtime/", "internal/sync.", "sync.", "sync/",
		"internal/poll.", "memeqbody", "aeshashbody", "gcWriteBarrier", "context.", "time.", "internal/bytealg."}},
	{results.GRPCShare, []string{"google.golang.org/grpc", "golang.org/x/net/http2", "net.", "net/", "bufio."}},
	{results.ProtobufShare, []string{"google.golang.org/protobuf"}},
	{results.RaftShare, []string{"github.com/hashicorp/", "github.com/armon/", "go.etcd.io/bbolt"}},
	{results.LeasedShare, []string{"github.com/leased-project/leased/"}},
}

// readShares returns the share of each layer in the processor time of a profile. A function counts with the time that
// is spent in it, without the functions that it calls.
func readShares(file string) (map[string]float64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	taken, err := profile.ParseData(data)
	if err != nil {
		return nil, fmt.Errorf("read the profile %s: %w", file, err)
	}
	return shares(taken)
}

// shares adds up the time of the samples of a profile.
func shares(taken *profile.Profile) (map[string]float64, error) {
	found, total := map[string]float64{}, 0.0
	for _, s := range taken.Sample {
		function := ""
		if len(s.Location) > 0 && len(s.Location[0].Line) > 0 {
			function = s.Location[0].Line[0].Function.Name
		}
		time := float64(s.Value[len(s.Value)-1]) // the first value is the number of samples
		found[layerOf(function)] += time
		total += time
	}
	if total == 0 {
		return nil, errors.New("the profile is empty")
	}
	for figure := range found {
		found[figure] /= total
	}
	return found, nil
}

// layerOf returns the figure of the layer that a function belongs to.
func layerOf(function string) string {
	for _, l := range layers {
		for _, prefix := range l.prefixes {
			if strings.HasPrefix(function, prefix) {
				return l.figure
			}
		}
	}
	return results.OtherShare
}
