//go:build unix

package conformance

import (
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
)

//go:embed scenarios.json
var scenariosJSON []byte

var only = flag.String("scenario", "", "run only the scenarios whose names contain this text")

var languages = []string{"Go", "Python", "TypeScript"}

type scenario struct {
	Name, Service string
	Clock         bool // with programs whose wall clock can be set; that of the Go client cannot
	TTLMillis     int
	Steps         []step
}

// step is a call of each client, or a fault.
type step struct {
	Do, Client, Lock, Lease, Secret string
	WaitMillis                      int
	Start                           bool // do not wait for the result before finish
	Want, NewerThan, Mode           string
	Member                          string // leader, follower or all
	Millis, Count                   int
}

// run is a scenario in one language.
type run struct {
	runner   runner
	name     string
	tokens   map[string]uint64
	started  map[string]chan result
	failures []string
}

func TestClientsBehaveAlike(t *testing.T) {
	var scenarios []scenario
	require.NoError(t, json.Unmarshal(scenariosJSON, &scenarios))
	testserver.Patient()
	binary := os.Getenv("TEST_BINARY")
	if binary == "" {
		var err error
		binary, err = testserver.BuildLeased(t.TempDir())
		require.NoError(t, err)
	}
	require.NoError(t, testserver.BuildTypeScript("../typescript"))
	services := map[string]*service{}
	for _, kind := range []string{"", "redis", "tls"} {
		services[kind] = newService(t, binary, kind)
	}
	runners := map[bool]map[string]runner{}
	for _, clock := range []bool{false, true} {
		var env []string
		if clock {
			env = services[""].fakeTime()
		}
		runners[clock] = map[string]runner{
			"Go": &goClient{clients: map[string]*lease.Client{}, leases: map[string]*lease.Lease{}},
			"Python": startProgram(t, append(env, "PYTHONPATH=../python/src"), "/usr/bin/python3",
				"../python/tests/runner.py"),
			"TypeScript": startProgram(t, append(env, "NODE_EXTRA_CA_CERTS="+services["tls"].ca), "node",
				"../typescript/test/runner.js"),
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%-28s", "")
	for _, language := range languages {
		fmt.Fprintf(&table, "%-12s", language)
	}
	for _, sc := range scenarios {
		if !strings.Contains(sc.Name, *only) {
			continue
		}
		t.Logf("scenario: %s", sc.Name)
		runs := sc.run(t, services[sc.Service], runners[sc.Clock])
		fmt.Fprintf(&table, "\n%-28s", sc.Name)
		for _, language := range languages {
			verdict := "ok"
			for _, failure := range runs[language].failures {
				verdict = "FAILED"
				t.Errorf("%s in %s: %s", sc.Name, language, failure)
			}
			fmt.Fprintf(&table, "%-12s", verdict)
		}
	}
	t.Logf("\n%s", table.String())
}

func (sc scenario) run(t *testing.T, s *service, runners map[string]runner) map[string]*run {
	runs := map[string]*run{}
	slug := strings.ReplaceAll(sc.Name, " ", "-")
	for _, language := range languages {
		runs[language] = &run{runner: runners[language], name: slug + "/" + language, tokens: map[string]uint64{},
			started: map[string]chan result{}}
	}
	for i, st := range sc.Steps {
		if sc.fault(t, s, st, slug) {
			continue
		}
		var all sync.WaitGroup
		for language, r := range runs {
			if len(r.failures) > 0 {
				continue
			}
			c := call{Do: st.Do, Client: st.Client, Endpoints: s.endpoints(language), Secret: s.secret, CA: s.ca,
				TTLMillis: sc.TTLMillis,
				Lock:      r.name + st.Lock, Lease: r.name + "#" + st.Lease, WaitMillis: st.WaitMillis}
			if st.Secret != "" {
				c.Secret = st.Secret
			}
			if c.TTLMillis == 0 {
				c.TTLMillis = 20_000
			}
			all.Add(1)
			go func() { defer all.Done(); r.step(i, st, c) }()
		}
		all.Wait()
	}
	s.heal()
	for _, r := range runs {
		for lease := range r.tokens {
			r.runner.do(call{Do: "release", Lease: r.name + "#" + lease})
		}
	}
	return runs
}

// step makes a call, or gets the result of one, and compares it.
func (r *run) step(number int, st step, c call) {
	answer := r.started[st.Lease]
	if st.Do != "finish" {
		answer = make(chan result, 1)
		go func() { answer <- r.runner.do(c) }()
	}
	if st.Start {
		r.started[st.Lease] = answer
		return
	}
	fail := func(format string, args ...any) {
		r.failures = append(r.failures, fmt.Sprintf("step %d, %s: ", number+1, st.Do)+fmt.Sprintf(format, args...))
	}
	select {
	case got := <-answer:
		switch {
		case got.Result != st.Want:
			fail("%s instead of %s", got.Result, st.Want)
		case st.Mode != "" && got.Mode != st.Mode:
			fail("mode %s instead of %s", got.Mode, st.Mode)
		case st.NewerThan != "" && got.Token <= r.tokens[st.NewerThan]:
			fail("token %d is not above %d", got.Token, r.tokens[st.NewerThan])
		case got.Result == "granted":
			r.tokens[st.Lease] = got.Token
		}
	case <-time.After(limit):
		fail("no result within %v", limit)
	}
}

// fault does what concerns all clients, and reports whether the step is such one.
func (sc scenario) fault(t *testing.T, s *service, st step, slug string) bool {
	t.Helper()
	switch st.Do {
	case "kill":
		for _, m := range s.pick(st.Member) {
			require.NoError(t, m.cmd.Process.Kill())
			_ = m.cmd.Wait()
		}
	case "stop":
		for _, m := range s.pick(st.Member) {
			require.NoError(t, m.cmd.Process.Signal(syscall.SIGSTOP))
		}
	case "heal":
		s.heal()
	case "clock":
		s.setClock(time.Duration(st.Millis) * time.Millisecond)
	case "renewals":
		for _, language := range languages {
			s.renewals(slug+"/"+language, st.Count)
		}
	case "slow", "cut":
		for _, proxies := range s.proxies {
			for _, p := range proxies {
				p.delay.Store(int64(st.Millis) * int64(time.Millisecond))
				p.cut.Store(st.Do == "cut")
			}
		}
	case "policy":
		s.must("set-policy", map[string]any{"policy": map[string]any{"prefix": slug + "/", "mode": st.Mode, "ttl": "6s"},
			"now": true})
		s.eventually("the migration", func() bool {
			return len(s.must("list-policies", map[string]any{})["migrations"].([]any)) == 0
		})
	case "break", "waiters":
		for _, language := range languages {
			name := slug + "/" + language
			var lock map[string]any
			s.eventually("waiters", func() bool {
				lock, _ = s.must("inspect", map[string]any{"resource": name})["lock"].(map[string]any)
				waiters, _ := lock["waiters"].([]any)
				return len(waiters) == st.Count
			})
			if st.Do == "break" {
				holder := lock["holders"].([]any)[0].(map[string]any)
				s.must("break", map[string]any{"resource": name, "token": holder["token"]})
			}
		}
	default:
		return false
	}
	return true
}
