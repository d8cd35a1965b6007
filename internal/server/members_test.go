package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/server/watch"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

// envMember makes the test binary a member: its value is a memberSpec as JSON.
const envMember = "LEASED_TEST_MEMBER"

func TestMain(m *testing.M) {
	if spec := os.Getenv(envMember); spec != "" {
		if err := runMember(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// memberSpec is what a member's process is started with.
type memberSpec struct {
	ID, Dir, Raft, API string
	Join               string       // the API of a member, empty to begin a cluster
	Redis              engine.Fleet // of the efficiency mode
}

// runMember is the process of a member. It ends with its parent, by a signal, or
// by the death of its node.
func runMember(text string) error {
	var spec memberSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	go func() { // the pipe ends with the parent
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	hub := watch.NewHub()
	node, err := raftstore.Open(raftstore.Config{ID: spec.ID, Dir: spec.Dir, Address: spec.Raft, Logger: quiet, Observer: hub,
		Fatal: func(err error) { fmt.Fprintln(os.Stderr, spec.ID, err); os.Exit(3) }})
	if err != nil {
		return err
	}
	config := server.Config{Node: node, Hub: hub, Redis: spec.Redis, Logger: quiet}
	listener, err := net.Listen("tcp", spec.API)
	if err != nil {
		return err
	}
	s, err := server.New(config, listener)
	if err != nil {
		return err
	}
	switch {
	case len(node.Members()) > 0: // it has been here before
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

// kill ends the process as a power cut would.
func (m *member) kill() {
	_ = m.command.Process.Kill()
	_ = m.command.Wait()
	m.stdin.Close()
}

// status is what the member says of itself, nil if it does not answer.
func (m *member) status() map[string]any {
	response, err := http.Post("http://"+m.spec.API+"/v1/status", "application/json", nil)
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
func startCluster(t testing.TB, size int, redis ...engine.Fleet) *cluster {
	t.Helper()
	c := &cluster{t: t}
	var fleet engine.Fleet
	if len(redis) > 0 {
		fleet = redis[0]
	}
	for i := range size {
		m := &member{t: t, spec: memberSpec{ID: fmt.Sprint("n", i+1), Dir: t.TempDir(), Raft: freePort(t), API: freePort(t), Redis: fleet}}
		if i > 0 {
			m.spec.Join = c.members[0].spec.API
		}
		m.start()
		t.Cleanup(m.kill)
		c.members = append(c.members, m)
	}
	eventually(t, "all members vote", func() bool {
		leader := c.leader()
		if leader == nil {
			return false
		}
		voters := 0
		list, _ := leader.status()["members"].([]any)
		for _, m := range list {
			if m.(map[string]any)["voter"] == true {
				voters++
			}
		}
		return voters == size
	})
	return c
}

// leader is the member that serves, nil if there is none.
func (c *cluster) leader() *member {
	for _, m := range c.members {
		if s := m.status(); s != nil && s["serves"] == true {
			return m
		}
	}
	return nil
}

// follower is a member that knows a leader and is not it.
func (c *cluster) follower() *member {
	c.t.Helper()
	var follower *member
	eventually(c.t, "a follower that knows its leader", func() bool {
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

func (c *cluster) endpoints() []string {
	var list []string
	for _, m := range c.members {
		list = append(list, m.spec.API)
	}
	return list
}

// freePort is a loopback address that was free a moment ago.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
