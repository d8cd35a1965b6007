package e2e

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/lease/engine"
)

var sizes = flag.String("sizes", "1000/100", "sizes that TestSizing measures, as LOCKS/SESSIONS, separated by commas")

// TestSizing prints the memory and disk that three real members need for a number of held
// locks and sessions: locks, sessions, memory of the leader and of a follower, disk of a
// member, size of a snapshot, and the CPU time to save it.
func TestSizing(t *testing.T) {
	t.Parallel()
	for size := range strings.SplitSeq(*sizes, ",") {
		t.Run(size, func(t *testing.T) {
			var locks, sessions int
			_, err := fmt.Sscanf(size, "%d/%d", &locks, &sessions)
			require.NoError(t, err)
			measureSize(t, locks, sessions)
		})
	}
}

func measureSize(t *testing.T, locks, sessions int) {
	t.Helper()
	c := newTrio(t)
	for i := range c.commands { // elections on a busy machine would only prolong the test
		c.commands[i] = append(c.commands[i], "--heartbeat-timeout=4s")
		c.start(i)
	}
	c.complete()
	began := time.Now()
	hold(t, c.apis, locks, sessions)
	loaded := time.Since(began)
	var out string
	eventually(t, func() bool { // all members have applied everything
		out, _ = call(t, c.env(), leased, "cluster", "status", "-o", "json")
		return len(regexp.MustCompile(fmt.Sprintf(`"locks": "?%d"?,`, locks)).FindAllString(out, -1)) >= 3
	}, "for all members to have the locks; the status is %s", lazy(func() string { return out }))
	leader := c.leader()
	follower := (leader + 1) % 3
	leaderMemory, followerMemory := c.memory(leader), c.memory(follower)
	log := folderSize(t, c.folder(follower))
	file := filepath.Join(t.TempDir(), "snapshot")
	before := c.cpu(follower)
	save := start(t, endpoint(c.apis[follower]), leased, "snapshot", "save", file)
	require.Zero(t, save.code(), &save.output)
	saved := c.cpu(follower) - before + save.cmd.ProcessState.UserTime() + save.cmd.ProcessState.SystemTime()
	info, err := os.Stat(file)
	require.NoError(t, err)
	const mib = 1 << 20
	t.Logf("| %d | %d | %.0f MiB | %.0f MiB | %.1f MiB | %.1f MiB | %.2f s | (loaded in %.1f s)",
		locks, sessions, leaderMemory/mib, followerMemory/mib, log/mib, float64(info.Size())/mib, saved.Seconds(),
		loaded.Seconds())
}

// hold acquires the locks, spread over the sessions. The leases last longer than the test.
func hold(t *testing.T, apis []string, locks, sessions int) {
	t.Helper()
	const callers = 256
	backend, err := remote.New(apis, remote.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { backend.Close() })
	next := make(chan int)
	var workers sync.WaitGroup
	for range callers {
		workers.Go(func() {
			for n := range next {
				var session engine.Session
				config := engine.SessionConfig{ID: engine.NewSessionID(), TTL: 6 * time.Hour}
				persist(t, func() (err error) { session, err = backend.Open(t.Context(), config); return err })
				for lock := n; lock < locks && !t.Failed(); lock += sessions {
					request := engine.Request{Nonce: engine.Nonce(1 + lock/sessions), Holder: "worker-" + strconv.Itoa(n),
						Resources: []fencing.Resource{fencing.Resource(fmt.Sprintf("orders/customer/%08d", lock))}}
					persist(t, func() error { _, err := session.Acquire(t.Context(), request); return err })
				}
			}
		})
	}
	for n := range sessions {
		next <- n
	}
	close(next)
	workers.Wait()
}

// persist repeats a call whose outcome is unknown, or that had no effect: an attempt and
// the opening of a session have one outcome.
func persist(t *testing.T, do func() error) {
	err := do()
	for errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrUncertain) {
		err = do()
	}
	if err != nil {
		t.Errorf("hold the locks: %v", err)
	}
}

// folder returns the data folder of a member.
func (c *trio) folder(i int) string { return c.commands[i][5] }

// memory returns the resident memory of a member in bytes.
func (c *trio) memory(i int) float64 {
	c.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.servers[i].cmd.Process.Pid))
	require.NoError(c.t, err)
	found := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	require.NotNil(c.t, found)
	kib, err := strconv.ParseFloat(string(found[1]), 64)
	require.NoError(c.t, err)
	return kib * 1024
}

// cpu returns the CPU time of a member. Other work on the machine does not add to it, as
// it does to the time that passes.
func (c *trio) cpu(i int) time.Duration {
	c.t.Helper()
	const tick = 10 * time.Millisecond // of Linux
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.servers[i].cmd.Process.Pid))
	require.NoError(c.t, err)
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	require.NoError(c.t, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(c.t, err)
	return time.Duration(user+system) * tick
}

// folderSize returns the disk space of the files in a folder in bytes. The log
// preallocates its files, so their sizes say less.
func folderSize(t *testing.T, dir string) (total float64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		out := must(t, nil, "du", "--block-size=1", path)
		size, err := strconv.ParseFloat(strings.Fields(out)[0], 64)
		total += size
		return err
	}))
	return total
}
