package work

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

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

// readShares returns the share of each layer in a profile. A function counts with the time that is
// spent in it, without the functions that it calls.
func readShares(ctx context.Context, file string) (map[string]float64, error) {
	text, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-nodecount=1000000", "-nodefraction=0",
		"-edgefraction=0", file).Output()
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, failed.Stderr)
		}
		return nil, fmt.Errorf("read the profile %s: %w", file, err)
	}
	return shares(text)
}

// shares adds up the table that 'go tool pprof -top' prints.
func shares(text []byte) (map[string]float64, error) {
	found := map[string]float64{}
	total, inTable := 0.0, false
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if !inTable {
			inTable = len(fields) > 0 && fields[0] == "flat"
			continue
		}
		if len(fields) < 6 {
			continue
		}
		flat, err := time.ParseDuration(strings.Replace(fields[0], "mins", "m", 1))
		if err != nil && fields[0] != "0" {
			return nil, fmt.Errorf("read the time %q: %w", fields[0], err)
		}
		found[layerOf(strings.Join(fields[5:], " "))] += flat.Seconds()
		total += flat.Seconds()
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
