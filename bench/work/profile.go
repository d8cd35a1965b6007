package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/leased-project/leased/bench/meter"
	"github.com/leased-project/leased/bench/results"
	"github.com/leased-project/leased/internal/load"
)

// measureProfile takes the CPU profiles of the client, the leader and a follower while workers use locks of their
// own, and makes a sample of each, with the time by layer.
func measureProfile(ctx context.Context, b *bench, t *target, s *results.Sample) error {
	leader, err := t.cluster.Leader(ctx)
	if err != nil {
		return err
	}
	r := &recorder{folder: cmp.Or(b.Keep, b.Dir), workers: s.Params["workers"], length: b.Length,
		servers: map[string]string{"leader": t.cluster.Profiles[leader],
			"follower": t.cluster.Profiles[(leader+1)%len(t.cluster.Profiles)]}}
	m := meter.New(t.cluster.Pids)
	options := load.Options{WarmUp: time.Second, Length: b.Length + time.Second,
		Begin: func() { m.Begin(); r.begin(ctx) }, End: func() { m.End(); r.end() }}
	result, err := load.Run(ctx, t.open, load.Work{Kind: load.Own, Workers: r.workers, Clients: 1}, options)
	if err := errors.Join(err, r.err); err != nil {
		return err
	}
	fill(s, result, m.Usage())
	for process, file := range r.files {
		shares, err := readShares(file)
		if err != nil {
			return err
		}
		b.Measured(results.Sample{Work: results.Profile, Target: process, Params: s.Params, Round: s.Round, Figures: shares,
			Steal: s.Steal})
	}
	return nil
}

// recorder takes the profiles of this process, the client, and of servers.
type recorder struct {
	folder  string
	workers int
	length  time.Duration
	servers map[string]string // addresses by the name of the process

	work   sync.WaitGroup
	client *os.File

	mu    sync.Mutex
	files map[string]string // by the name of the process
	err   error
}

// file returns the name of the file of a profile.
func (r *recorder) file(process string) string {
	return filepath.Join(r.folder, fmt.Sprintf("%s-%d.pprof", process, r.workers))
}

// begin starts the profiles. Those of the servers end by themselves.
func (r *recorder) begin(ctx context.Context) {
	r.files = map[string]string{"client": r.file("client")}
	if r.client, r.err = os.Create(r.files["client"]); r.err == nil {
		r.err = pprof.StartCPUProfile(r.client)
	}
	for process, address := range r.servers {
		r.work.Go(func() {
			err := r.fetch(ctx, address, r.file(process))
			r.mu.Lock()
			defer r.mu.Unlock()
			r.files[process] = r.file(process)
			r.err = errors.Join(r.err, err)
		})
	}
}

// end waits for the profiles.
func (r *recorder) end() {
	pprof.StopCPUProfile()
	r.work.Wait()
	if r.client != nil {
		r.err = errors.Join(r.err, r.client.Close())
	}
}

// fetch reads the profile of a server into a file.
func (r *recorder) fetch(ctx context.Context, address, file string) error {
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", address, int(r.length.Seconds()))
	data, err := get(ctx, url)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}
