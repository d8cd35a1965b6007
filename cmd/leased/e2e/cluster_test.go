//go:build unix

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
)

// trio is the three members in the help of serve, on other ports.
type trio struct {
	t        *testing.T
	commands [][]string
	apis     []string
	servers  []*process
}

func startTrio(t *testing.T) *trio {
	t.Helper()
	c := newTrio(t)
	for i := range c.commands {
		c.start(i)
	}
	c.complete()
	return c
}

// complete waits until all members are voters: before that the cluster may not
// tolerate the loss of one.
func (c *trio) complete() {
	c.t.Helper()
	healthy(c.t, c.apis...)
	eventually(c.t, func() bool {
		out, _ := call(c.t, c.env(), leased, "cluster", "status")
		return strings.Count(out, " yes ") == 3
	}, "for three voters")
}

// newTrio reads the commands from the help, and starts no member.
func newTrio(t *testing.T) *trio {
	t.Helper()
	help := must(t, nil, leased, "serve", "--help")
	dir := t.TempDir()
	c := &trio{t: t}
	ports := map[string]string{}
	port := regexp.MustCompile(`127\.0\.0\.1:74\d\d`)
	for line := range strings.Lines(help) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "leased serve --id") {
			continue
		}
		line = port.ReplaceAllStringFunc(line, func(printed string) string {
			if ports[printed] == "" {
				ports[printed] = testserver.FreeAddr(t)
			}
			return ports[printed]
		})
		args := strings.Fields(strings.ReplaceAll(line, "data/", dir+"/"))
		args[0] = leased
		c.commands = append(c.commands, args)
	}
	require.Len(t, c.commands, 3, help)
	for _, printed := range []string{"127.0.0.1:7420", "127.0.0.1:7430", "127.0.0.1:7440"} {
		c.apis = append(c.apis, ports[printed])
	}
	c.servers = make([]*process, len(c.commands))
	return c
}

func (c *trio) start(i int) { c.servers[i] = start(c.t, nil, c.commands[i]...) }

func (c *trio) env() []string { return endpoint(c.apis...) }

// leader returns the number of the leader.
func (c *trio) leader() int {
	c.t.Helper()
	leader := -1
	eventually(c.t, func() bool {
		out, _ := call(c.t, c.env(), leased, "cluster", "status")
		for line := range strings.Lines(out) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "leader" {
				leader = int(fields[0][0] - 'a')
				return true
			}
		}
		return false
	}, "for a leader")
	return leader
}

// Each member is killed in turn, the leader first. Jobs under `leased run` and the Go
// client continue, one at a time, and no job is lost or repeated.
func TestKillEachMember(t *testing.T) {
	t.Parallel()
	c := startTrio(t)
	dir := t.TempDir()
	journal, counter := filepath.Join(dir, "journal"), filepath.Join(dir, "counter")
	require.NoError(t, os.WriteFile(counter, []byte("0\n"), 0o600))
	work := fmt.Sprintf(`echo begin $LEASED_TOKEN >> %[1]s; n=$(cat %[2]s); sleep 0.02; echo $((n+1)) > %[2]s;
		echo end $LEASED_TOKEN >> %[1]s`, journal, counter)

	ctx, stop := context.WithCancel(t.Context())
	var jobs sync.WaitGroup
	var mu sync.Mutex
	done := 0
	finished := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			done++
		} else {
			t.Errorf("a job failed: %v", err)
		}
	}
	for range 2 {
		jobs.Go(func() {
			for ctx.Err() == nil {
				job := exec.Command(leased, "run", "shared-work", "-q", "--ttl=1m", "--", "sh", "-c", work)
				job.Env = append(os.Environ(), c.env()...)
				out, err := job.CombinedOutput()
				if err != nil {
					err = fmt.Errorf("leased run: %w: %s", err, out)
				}
				finished(err)
			}
		})
	}
	jobs.Go(func() { c.goClient(ctx, journal, counter, finished) })

	progress := func() {
		mu.Lock()
		before := done
		mu.Unlock()
		eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return done >= before+3 || t.Failed() },
			"for the jobs to continue")
	}
	progress()
	first := c.leader()
	for n := range 3 {
		victim := (first + n) % 3
		c.servers[victim].signal(syscall.SIGKILL)
		progress()
		c.start(victim)
		healthy(t, c.apis...)
		progress()
	}
	stop()
	jobs.Wait()
	checkJournal(t, journal, counter, done)
}

// goClient does the work of the shell script in this process.
func (c *trio) goClient(ctx context.Context, journal, counter string, finished func(error)) {
	backend, err := remote.New(c.apis, remote.Config{})
	if err != nil {
		finished(err)
		return
	}
	defer backend.Close()
	client, err := lease.New(backend)
	if err != nil {
		finished(err)
		return
	}
	defer func() { _ = client.Close(context.Background()) }()
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(context.Background(), testTimeout)
		err := client.Do(limited, "shared-work", func(_ context.Context, l *lease.Lease) error {
			return increment(journal, counter, l.Token())
		})
		cancel()
		finished(err)
	}
}

func increment(journal, counter string, token fencing.Token) error {
	note := func(word string) error {
		f, err := os.OpenFile(journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = fmt.Fprintf(f, "%s %d\n", word, token)
		return err
	}
	if err := note("begin"); err != nil {
		return err
	}
	text, err := os.ReadFile(counter)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	if err := os.WriteFile(counter, []byte(strconv.Itoa(n+1)+"\n"), 0o600); err != nil {
		return err
	}
	return note("end")
}

// checkJournal checks that the jobs did not overlap, had growing tokens and were
// counted once each.
func checkJournal(t *testing.T, journal, counter string, done int) {
	t.Helper()
	file, err := os.Open(journal)
	require.NoError(t, err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	last, jobs := 0, 0
	for lines.Scan() {
		var token int
		_, err := fmt.Sscanf(lines.Text(), "begin %d", &token)
		require.NoError(t, err, "job %d overlaps with another", jobs)
		require.Greater(t, token, last)
		require.True(t, lines.Scan())
		require.Equal(t, fmt.Sprintf("end %d", token), lines.Text(), "two jobs overlap")
		last = token
		jobs++
	}
	require.Equal(t, done, jobs)
	require.Equal(t, strconv.Itoa(jobs), strings.TrimSpace(must(t, nil, "cat", counter)))
	t.Logf("%d jobs", jobs)
}

// All connections use TLS, and clients need a certificate.
func TestClusterWithTLS(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	a := newAuthority(t)
	a.issue("member", "127.0.0.1", "a", "b", "c")
	a.issue("client", "127.0.0.1")
	for i := range c.commands {
		c.commands[i] = append(append(c.commands[i], "--tls-clients"), a.flags("member")...)
		c.start(i)
	}
	client := a.flags("client")
	eventually(t, func() bool {
		_, code := call(t, c.env(), append([]string{leased, "run", "nightly", "--wait=5s"},
			append(client, "--", "true")...)...)
		return code == 0
	}, "for a lock")
	eventually(t, func() bool { // the first may be there before the others have joined
		out, _ := call(t, c.env(), append([]string{leased, "cluster", "status"}, client...)...)
		return len(regexp.MustCompile(`(?m)^[abc] +(leader|follower) +yes`).FindAllString(out, -1)) == 3
	}, "for three members")
	_, code := call(t, c.env(), leased, "list", a.ca())
	require.NotZero(t, code, "a client without a certificate was accepted")
}

// SIGTERM transfers leadership before the leader exits.
func TestStopTransfersLeadership(t *testing.T) {
	t.Parallel()
	c := startTrioWith(t, []string{"--heartbeat-timeout=4s"}) // it also bounds the transfer
	old := c.leader()
	c.servers[old].signal(syscall.SIGTERM)
	require.Zero(t, c.servers[old].code())
	require.Contains(t, c.servers[old].output.String(), "reason=transfer")
	require.NotEqual(t, old, c.leader())
	must(t, c.env(), leased, "run", "nightly", "--", "true")
}

// Leadership is transferred to a given member, one member is removed, and another
// joins.
func TestMembersChange(t *testing.T) {
	t.Parallel()
	c := startTrio(t)
	to := string(rune('a' + (c.leader()+1)%3))
	var out string
	eventually(t, func() bool { // a transfer on a busy machine may take longer than its limit
		out, _ = call(t, c.env(), leased, "cluster", "transfer", to)
		return string(rune('a'+c.leader())) == to
	}, "for %s to lead; the command printed:\n%s", to, lazy(func() string { return out }))

	gone := (c.leader() + 1) % 3
	c.servers[gone].signal(syscall.SIGKILL)
	c.servers[gone].code()
	name := string(rune('a' + gone))

	// A new folder with the old id has no record of the votes.
	api := testserver.FreeAddr(t)
	fresh := []string{leased, "serve", "--data=" + t.TempDir() + "/new", "--listen=" + api, "--raft-listen=127.0.0.1:0",
		"--join=" + strings.Join(c.apis, ",")}
	out, code := call(t, nil, append(fresh, "--id="+name)...)
	require.NotZero(t, code)
	require.Contains(t, out, "leased cluster remove "+name)

	c.remove(name)
	c.start(gone)
	eventually(t, func() bool { // it exits, unless the leader has told it before it asks
		var ready string
		_ = curl(t, "http://"+c.apis[gone]+"/readyz", "", &ready)
		return strings.Contains(c.servers[gone].output.String(), "has removed member "+name+"; empty the data folder") ||
			strings.Contains(ready, "was removed from the cluster")
	}, "for the member to know that it was removed")
	c.servers[gone].signal(syscall.SIGKILL)
	c.servers[gone].code()
	start(t, nil, append(fresh, "--id=d")...)
	healthy(t, api)
	eventually(t, func() bool {
		out, _ := call(t, c.env(), leased, "cluster", "status")
		return regexp.MustCompile(`(?m)^d +\S+ +yes`).MatchString(out)
	}, "for d to vote")
	require.NotRegexp(t, `(?m)^`+name+` `, must(t, c.env(), leased, "cluster", "status"))
}

// remove removes a member. If the answer is lost, there is no such member when the command runs again.
func (c *trio) remove(id string) {
	c.t.Helper()
	var out string
	eventually(c.t, func() bool {
		var code int
		out, code = call(c.t, c.env(), leased, "cluster", "remove", id)
		return code == 0 || code == 2 && strings.Contains(out, "there is no member")
	}, "for the removal of %s; the command printed:\n%s", id, lazy(func() string { return out }))
	row := regexp.MustCompile(`(?m)^` + id + ` `)
	eventually(c.t, func() bool {
		out = must(c.t, c.env(), leased, "cluster", "status")
		return !row.MatchString(out)
	}, "for a cluster without %s; the status is:\n%s", id, lazy(func() string { return out }))
}

// Two of three members are lost; the third becomes the only one, with larger tokens.
func TestRecovery(t *testing.T) {
	t.Parallel()
	c := startTrio(t)
	before, err := post(t, c.apis[c.leader()], "Acquire", `{"resource":"account/7","ttl":"10m"}`)
	require.NoError(t, err)
	left := c.leader() // it has all acknowledged changes
	for i, server := range c.servers {
		server.signal(syscall.SIGKILL)
		server.code()
		if i != left {
			require.NoError(t, os.RemoveAll(c.commands[i][5])) // --data
		}
	}
	recover := append([]string{leased, "cluster", "recover"}, c.commands[left][2:]...)
	require.Contains(t, exits(t, 2, nil, recover...), "confirm with --yes")
	require.Contains(t, must(t, nil, append(recover, "--yes")...), "the only member now")

	api := c.apis[left]
	start(t, nil, append(c.commands[left][:10:10], "--bootstrap-expect=1")...) // serve, its id, folder and addresses
	healthy(t, api)
	after, err := post(t, api, "Acquire", `{"resource":"account/7"}`)
	require.NoError(t, err, "all sessions have ended")
	require.Greater(t, after.Token, before.Token+1<<32)
}

// A restore ends all leases, and tokens keep growing.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	env := endpoint(api)
	file := filepath.Join(t.TempDir(), "snapshot")
	before, err := post(t, api, "Acquire", `{"resource":"account/7","ttl":"10m"}`)
	require.NoError(t, err)
	require.Contains(t, must(t, env, leased, "snapshot", "save", file), "last token")
	require.Contains(t, must(t, nil, leased, "snapshot", "inspect", file), "sha256")
	require.Contains(t, exits(t, 2, env, leased, "snapshot", "restore", file), "confirm with --yes")
	must(t, env, leased, "snapshot", "restore", file, "--yes")
	after, err := post(t, api, "Acquire", `{"resource":"account/7"}`)
	require.NoError(t, err, "all sessions have ended")
	require.Greater(t, after.Token, before.Token+1<<32)

	info, err := os.Stat(file)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(file, info.Size()-1))
	out, code := call(t, nil, leased, "snapshot", "inspect", file)
	require.Equal(t, 1, code)
	require.Contains(t, out, "truncated or damaged")
}
