package server_test

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// envMember makes the test binary run as a member. Its value is a memberSpec as JSON.
const envMember = "LEASED_TEST_MEMBER"

// parallelTests is the number of tests that run at the same time. They mostly wait,
// so that it is larger than the number of processors.
const parallelTests = "8"

func TestMain(m *testing.M) {
	if spec := os.Getenv(envMember); spec != "" {
		if err := runMember(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", parallelTests); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Times of members.
const (
	// statusTimeout bounds a call of Status, so that a member that hangs fails its test.
	statusTimeout = 10 * time.Second
	// steadyHeartbeat is the heartbeat timeout of members that nothing disturbs: on a busy
	// machine, the leader must stay the leader.
	steadyHeartbeat = 6 * time.Second
)

// memberSpec configures the process of a member.
type memberSpec struct {
	ID, Dir, Raft, API string
	Join               string        // the API address of a member, empty to start a cluster
	Redis              engine.Fleet  // of efficiency mode
	Limits             limits.Limits // the zero value is the defaults
	Unmeasured         bool          // without metrics
	Collects           bool          // collect garbage all the time
	Heartbeat          time.Duration // the timeout after which followers start an election; 0 is two seconds
}

// runMember is the process of a member. It ends with its parent, by a signal, or when
// its node fails.
func runMember(text string) error {
	var spec memberSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	go func() { // the pipe is closed when the parent ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	if spec.Collects {
		go func() {
			for range time.Tick(100 * time.Millisecond) {
				runtime.GC()
			}
		}()
	}
	var measured *metrics.Metrics
	if !spec.Unmeasured {
		measured = metrics.New("test", "")
	}
	listener, err := net.Listen("tcp", spec.API)
	if err != nil {
		return err
	}
	s, err := server.New(server.Config{Metrics: measured, Redis: spec.Redis, RedisTimeout: busyTimeout(spec.Redis),
		Limits: spec.Limits, Logger: quiet, Signer: memberSigner,
		Raft: raftstore.Config{ID: spec.ID, Dir: spec.Dir, Address: spec.Raft, Logger: quiet,
			HeartbeatTimeout: cmp.Or(spec.Heartbeat, 2*time.Second), StoreDeadline: time.Minute,
			Fatal: func(err error) { fmt.Fprintln(os.Stderr, spec.ID, err); os.Exit(3) }}}, listener)
	if err != nil {
		return err
	}
	node := s.Node()
	switch {
	case len(node.Members()) > 0: // a restart
	case spec.Join == "":
		err = node.Bootstrap()
	default:
		go func() {
			if err := s.Join(context.Background(), spec.Join); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}()
	}
	if err != nil {
		return err
	}
	return s.Serve()
}

// member is a member in a process of its own.
type member struct {
	t       testing.TB
	spec    memberSpec
	command *exec.Cmd
	stdin   io.Closer
}

// start runs the process, and returns when its API answers.
func (m *member) start() {
	m.t.Helper()
	text, err := json.Marshal(m.spec)
	require.NoError(m.t, err)
	m.command = exec.Command(os.Args[0])
	m.command.Env = append(os.Environ(), envMember+"="+string(text))
	m.command.Stderr = os.Stderr
	m.stdin, err = m.command.StdinPipe()
	require.NoError(m.t, err)
	require.NoError(m.t, m.command.Start())
	eventually(m.t, "member "+m.spec.ID+" answers", func() bool { return m.status() != nil })
}

// kill ends the process without a warning.
func (m *member) kill() {
	_ = m.command.Process.Kill()
	_ = m.command.Wait()
	m.stdin.Close()
}

// status returns the member's Status, or nil if it does not answer.
func (m *member) status() map[string]any {
	response, err := (&http.Client{Timeout: statusTimeout}).Post("http://"+m.spec.API+"/v1/status", "application/json",
		nil)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	var status map[string]any
	if json.NewDecoder(response.Body).Decode(&status) != nil {
		return nil
	}
	return status
}

// cluster is members in processes of their own.
type cluster struct {
	t       testing.TB
	members []*member
}

// startCluster starts members that join the first.
func startCluster(t testing.TB, size int, redis engine.Fleet) *cluster {
	t.Helper()
	return startClusterWith(t, size, memberSpec{Redis: redis})
}

// startClusterWith starts members that have some settings in common.
func startClusterWith(t testing.TB, size int, common memberSpec) *cluster {
	t.Helper()
	c := &cluster{t: t}
	for i := range size {
		m := &member{t: t, spec: common}
		m.spec.ID, m.spec.Dir, m.spec.Raft, m.spec.API = fmt.Sprint("n", i+1), t.TempDir(), testserver.FreeAddr(t),
			testserver.FreeAddr(t)
		if i > 0 {
			m.spec.Join = c.members[0].spec.API
		}
		m.start()
		t.Cleanup(m.kill)
		c.members = append(c.members, m)
	}
	eventually(t, "all members know that all vote", func() bool {
		return c.leader() != nil && !slices.ContainsFunc(c.members, c.missesVoters)
	})
	return c
}

// missesVoters reports whether a member does not know yet that all members vote. If the
// leader were killed before the others know it, they could be too few to elect another.
func (c *cluster) missesVoters(m *member) bool {
	voters := 0
	list, _ := m.status()["members"].([]any)
	for _, other := range list {
		if other.(map[string]any)["voter"] == true {
			voters++
		}
	}
	return voters != len(c.members)
}

// leader returns the member that serves as the leader, or nil if there is none.
func (c *cluster) leader() *member {
	for _, m := range c.members {
		if s := m.status(); s != nil && s["serves"] == true {
			return m
		}
	}
	return nil
}

// awaitLeader waits for a leader.
func (c *cluster) awaitLeader() *member {
	c.t.Helper()
	var leader *member
	eventually(c.t, "there is a leader", func() bool { leader = c.leader(); return leader != nil })
	return leader
}

// follower returns a member that knows the leader and is not the leader.
func (c *cluster) follower() *member {
	c.t.Helper()
	var follower *member
	eventually(c.t, "a follower knows the leader", func() bool {
		for _, m := range c.members {
			if s := m.status(); s != nil && s["serves"] != true && s["leaderApiAddress"] != nil {
				follower = m
				return true
			}
		}
		return false
	})
	return follower
}

// remove removes a member. An election may interrupt a call after the change, which the next call then finds.
func (c *cluster) remove(id string, through func() *member) {
	c.t.Helper()
	calls := 0
	eventually(c.t, id+" is removed", func() bool {
		calls++
		code, answer := post(c.t, through().spec.API, "/v1/remove", `{"id":"`+id+`"}`)
		return code == http.StatusOK || calls > 1 && strings.Contains(fmt.Sprint(answer["message"]), "there is no member")
	})
}

func (c *cluster) endpoints() []string {
	var list []string
	for _, m := range c.members {
		list = append(list, m.spec.API)
	}
	return list
}

// killLeaders kills leaders until stop is closed. After each number of rounds with
// short pauses it pauses for longer than quiet. A client must be able to renew in a
// short pause.
func (c *cluster) killLeaders(stop <-chan struct{}, rounds int, quiet time.Duration) (kills int) {
	for n := 1; ; n++ {
		kills += c.killLeader(stop)
		pause := 1500 * time.Millisecond
		if n%rounds == 0 {
			pause = quiet + 2*time.Second
		}
		select {
		case <-time.After(pause):
		case <-stop:
			return kills
		}
	}
}

// killLeader kills the leader, restarts it when another member leads, and returns
// when it knows the new leader. It returns the number of killed leaders.
func (c *cluster) killLeader(stop <-chan struct{}) int {
	until := func(holds func() bool) bool {
		for !holds() {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-stop:
				return false
			}
		}
		return true
	}
	var leader *member
	if !until(func() bool { leader = c.leader(); return leader != nil }) {
		return 0
	}
	leader.kill()
	until(func() bool { return c.leader() != nil })
	leader.start()
	until(func() bool { return leader.status()["leaderApiAddress"] != nil })
	return 1
}
