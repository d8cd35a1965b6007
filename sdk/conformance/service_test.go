//go:build unix

package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

const limit = 4 * time.Minute

// service is a real service. Each client has its own proxies to the members.
type service struct {
	t       *testing.T
	program string
	members []*member
	proxies map[string][]*proxy // by language
	secret  string
	ca      string
	client  *http.Client // for the driver
	clock   string       // the file with the offset of the clients' wall clock
}

// fakeTime returns the environment of programs whose wall clock setClock sets.
func (s *service) fakeTime() []string {
	library, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	require.NotEmpty(s.t, library, "install libfaketime (Debian: apt-get install faketime)")
	s.clock = filepath.Join(s.t.TempDir(), "clock")
	s.setClock(0)
	return []string{"LD_PRELOAD=" + library[0], "FAKETIME_TIMESTAMP_FILE=" + s.clock, "FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1"}
}

func (s *service) setClock(offset time.Duration) {
	require.NoError(s.t, os.WriteFile(s.clock, fmt.Appendf(nil, "%+.0f\n", offset.Seconds()), 0o600))
}

type member struct {
	args []string
	addr string
	cmd  *exec.Cmd
}

func (m *member) start(t *testing.T, program string) {
	m.cmd = exec.Command(program, m.args...)
	require.NoError(t, m.cmd.Start())
}

func newService(t *testing.T, program, kind string) *service {
	t.Helper()
	s := &service{t: t, program: program, proxies: map[string][]*proxy{}, client: http.DefaultClient}
	dir := t.TempDir()
	switch kind {
	case "redis":
		addr := testserver.FreeAddr(t)
		s.members = []*member{{addr: addr, args: []string{"dev", "--listen", addr, "--raft-listen", testserver.FreeAddr(t),
			"--data", dir}}}
	case "tls":
		s.secure(dir)
	default:
		var apis []string
		for range 3 {
			apis = append(apis, testserver.FreeAddr(t))
		}
		for i, addr := range apis {
			id := string(rune('a' + i))
			s.members = append(s.members, &member{addr: addr, args: []string{"serve", "--id", id, "--data",
				filepath.Join(dir, id), "--listen", addr,
				"--raft-listen", testserver.FreeAddr(t), "--bootstrap-expect", "3", "--join", strings.Join(apis, ",")}})
		}
	}
	for _, m := range s.members {
		m.start(t, program)
	}
	t.Cleanup(func() {
		for _, m := range s.members {
			_ = m.cmd.Process.Signal(syscall.SIGCONT)
			_ = m.cmd.Process.Signal(syscall.SIGTERM)
			_ = m.cmd.Wait()
		}
	})
	for _, language := range languages {
		for _, m := range s.members {
			s.proxies[language] = append(s.proxies[language], newProxy(t, m.addr))
		}
	}
	s.healthy()
	return s
}

// secure adds a member with TLS and a user.
func (s *service) secure(dir string) {
	run := func(args ...string) string {
		output, err := exec.Command(s.program, args...).Output()
		require.NoError(s.t, err, args)
		return string(output)
	}
	run("certs", "--dir", dir, "--member", "one")
	users := filepath.Join(dir, "users")
	secret := run("user", "add", "alice", "--users", users, "--allow", "acquire:*", "--allow", "read:*")
	s.secret = strings.TrimSpace(secret)
	addr := testserver.FreeAddr(s.t)
	s.ca = filepath.Join(dir, "one", "ca.pem")
	s.members = []*member{{addr: addr, args: []string{"serve", "--id", "one", "--data", filepath.Join(dir, "data"),
		"--listen", addr,
		"--raft-listen", testserver.FreeAddr(s.t), "--bootstrap-expect", "1", "--users", users, "--tls-ca", s.ca,
		"--tls-cert", filepath.Join(dir, "one", "cert.pem"), "--tls-key", filepath.Join(dir, "one", "key.pem")}}}
}

func (s *service) endpoints(language string) (urls []string) {
	for _, p := range s.proxies[language] {
		urls = append(urls, map[bool]string{true: "https://", false: "http://"}[s.ca != ""]+p.addr)
	}
	return urls
}

func scheme(url string) string { return url[:strings.Index(url, "//")+2] }

// ask calls a member and returns the answer.
func (s *service) ask(addr, method string, body any) (answer map[string]any, ok bool) {
	text, err := json.Marshal(body)
	require.NoError(s.t, err)
	response, err := (&http.Client{Timeout: 5 * time.Second}).Post("http://"+addr+"/v1/"+method, "application/json",
		bytes.NewReader(text))
	if err != nil {
		return nil, false
	}
	defer response.Body.Close()
	_ = json.NewDecoder(response.Body).Decode(&answer)
	return answer, response.StatusCode == http.StatusOK
}

// must calls any member until one serves the call.
func (s *service) must(method string, body any) (answer map[string]any) {
	s.eventually(method, func() (ok bool) {
		for _, m := range s.members {
			if answer, ok = s.ask(m.addr, method, body); ok {
				return true
			}
		}
		return false
	})
	return answer
}

func (s *service) eventually(what string, holds func() bool) {
	end := time.After(limit)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-end:
			require.Fail(s.t, "waited too long for "+what)
		}
	}
}

// healthy waits until all members serve.
func (s *service) healthy() {
	for _, m := range s.members {
		s.eventually("members", func() bool {
			if s.ca != "" { // the driver has no certificate
				connection, err := net.Dial("tcp", m.addr)
				if err == nil {
					_ = connection.Close()
				}
				return err == nil
			}
			response, err := http.Get("http://" + m.addr + "/readyz")
			if err == nil {
				_ = response.Body.Close()
			}
			return err == nil && response.StatusCode == http.StatusOK
		})
	}
}

// renewals waits until the time that a lease has left has risen some times.
func (s *service) renewals(name string, count int) {
	var last time.Duration
	s.eventually("renewals of "+name, func() bool {
		lock, _ := s.must("inspect", map[string]any{"resource": name})["lock"].(map[string]any)
		holders, _ := lock["holders"].([]any)
		if len(holders) == 0 {
			return true // the next step notices it
		}
		text, _ := holders[0].(map[string]any)["ttlLeft"].(string)
		left, err := time.ParseDuration(text)
		require.NoError(s.t, err)
		if left > last && last > 0 {
			count--
		}
		last = left
		return count <= 0
	})
}

// pick returns the leader, a follower or all members.
func (s *service) pick(which string) (picked []*member) {
	if which == "all" {
		return s.members
	}
	s.eventually("a "+which, func() bool {
		for _, m := range s.members {
			if status, ok := s.ask(m.addr, "status", map[string]any{}); ok && status["state"] == which {
				picked = []*member{m}
				return true
			}
		}
		return false
	})
	return picked
}

// heal continues and restarts all members.
func (s *service) heal() {
	for _, m := range s.members {
		_ = m.cmd.Process.Signal(syscall.SIGCONT)
		if m.cmd.ProcessState != nil {
			m.start(s.t, s.program)
		}
	}
	for _, proxies := range s.proxies {
		for _, p := range proxies {
			p.delay.Store(0)
			p.cut.Store(false)
		}
	}
	s.healthy()
}

// proxy forwards connections. It can delay answers, and lose the next one with its connection.
type proxy struct {
	addr  string
	delay atomic.Int64
	cut   atomic.Bool
}

func newProxy(t *testing.T, to string) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{addr: listener.Addr().String()}
	var open sync.Map
	t.Cleanup(func() {
		_ = listener.Close()
		open.Range(func(c, _ any) bool { return c.(net.Conn).Close() == nil || true })
	})
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			open.Store(from, nil)
			open.Store(server, nil)
			end := func() { _ = from.Close(); _ = server.Close() }
			go func() { _, _ = io.Copy(server, from); end() }()
			go func() { p.answers(from, server); end() }()
		}
	}()
	return p
}

func (p *proxy) answers(to, from net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil || p.cut.CompareAndSwap(true, false) {
			return
		}
		if delay := time.Duration(p.delay.Load()); delay > 0 {
			<-time.After(delay)
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
