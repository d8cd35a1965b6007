//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/leased-project/leased/internal/testserver"
)

const (
	memberCount = 3
	redisCount  = 5
	// redisMaxTTL is the maximal TTL in efficiency mode, and the quarantine of a Redis node
	// that lost its state.
	redisMaxTTL = 2 * time.Second
	startLimit  = 2 * time.Minute
	stopLimit   = 20 * time.Second
)

// world is all processes of a run.
type world struct {
	config     Config
	began      time.Duration
	network    *network
	tls        string // folder of the certificates
	members    []*member
	redisNodes []*redisNode
	postgres   *testserver.Server
	database   *database
	locks      *lockServers // nil if members have the locks
	workers    []*worker
	without    []string // faults that cannot be injected, and why
}

// newWorld starts all processes except the workers. On an error it stops all.
func newWorld(ctx context.Context, c Config) (*world, error) {
	w := &world{config: c, began: monotonic(), network: &network{}}
	steps := []func(context.Context) error{w.startStorage, w.startLocks}
	if c.Scenario != Postgres {
		w.network = newNetwork(memberCount)
		steps = []func(context.Context) error{w.startStorage, w.startRedisNodes, w.startMembers}
	}
	if w.network.why != "" && !w.network.namespaces {
		w.without = append(w.without, w.network.why)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			w.stop()
			return nil, err
		}
	}
	return w, nil
}

// now returns the time since the start of the run.
func (w *world) now() time.Duration { return monotonic() - w.began }

func (w *world) startStorage(ctx context.Context) (err error) {
	if w.postgres, err = testserver.StartPostgres(); err != nil {
		return err
	}
	if w.database, err = openDatabase(ctx, w.postgres.DSN); err != nil {
		return err
	}
	return w.database.install(ctx)
}

func (w *world) startRedisNodes(context.Context) error {
	preload, why := fakeClock()
	if why != "" {
		w.without = append(w.without, why)
	}
	for i := range redisCount {
		m, err := newRedisNode(w, i, preload)
		if err != nil {
			return err
		}
		w.redisNodes = append(w.redisNodes, m)
	}
	return nil
}

// policies are the policies of locks that keep their mode. The migrator sets the policy of
// the others, so that no new leader resets it.
const policies = `policies:
  - prefix: "c/"
    mode: correctness
    ttl: 1s
  - prefix: "e/"
    mode: efficiency
    ttl: 1s
`

func (w *world) startMembers(ctx context.Context) error {
	dir := filepath.Join(w.config.Dir, "members")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	settings := filepath.Join(dir, "settings.yaml")
	if err := os.WriteFile(settings, []byte(policies), 0o600); err != nil {
		return err
	}
	free, err := testserver.FreeAddresses(2 * memberCount)
	if err != nil {
		return err
	}
	var apis, redises []string
	for i := range memberCount {
		m := &member{world: w, number: i, name: string(rune('a' + i)), api: free[2*i], raft: free[2*i+1]}
		if w.network.namespaces {
			m.api, m.raft = w.network.address(i)+":7420", w.network.address(i)+":7421"
		}
		w.members, apis = append(w.members, m), append(apis, m.api)
	}
	for _, m := range w.redisNodes {
		redises = append(redises, m.addr)
	}
	if err := w.makeCertificates(ctx); err != nil {
		return err
	}
	for i, m := range w.members {
		own := filepath.Join(w.tls, m.name)
		args := []string{w.config.Leased, "serve", "--config=" + settings, "--id=" + m.name, "--data=" + filepath.Join(dir,
			m.name),
			"--listen=" + m.api, "--raft-listen=" + m.raft, "--bootstrap-expect=3", "--join=" + strings.Join(apis, ","),
			"--redis=" + strings.Join(redises, ","), "--redis-max-ttl=" + redisMaxTTL.String(),
			"--tls-ca=" + w.ca(), "--tls-cert=" + filepath.Join(own, "cert.pem"), "--tls-key=" + filepath.Join(own, "key.pem")}
		m.process = &testserver.Process{Name: "member " + m.name, Args: w.network.in(i, args),
			Log: filepath.Join(w.config.Dir, "member-"+m.name+".log")}
		if err := m.process.Start(); err != nil {
			return err
		}
	}
	for _, m := range w.members {
		if !until(ctx, startLimit, m.knowsLeader) {
			return fmt.Errorf("member %s was not ready within %v; its log is %s", m.name, startLimit, m.process.Log)
		}
		if !until(ctx, startLimit, m.fleetReady) {
			return fmt.Errorf("member %s did not see the efficiency mode ready within %v; the logs are %s", m.name, startLimit,
				w.config.Dir)
		}
	}
	return nil
}

// makeCertificates makes a CA and the certificates of the members. Members that do not listen on the loopback
// interface require them.
func (w *world) makeCertificates(ctx context.Context) error {
	w.tls = filepath.Join(w.config.Dir, "tls")
	args := []string{"certs", "--dir=" + w.tls}
	for i, m := range w.members {
		args = append(args, "--member="+m.name+"="+w.network.address(i))
	}
	if out, err := exec.CommandContext(ctx, w.config.Leased, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("create certificates: %w\n%s", err, out)
	}
	return nil
}

func (w *world) ca() string { return filepath.Join(w.tls, "ca.pem") }

// endpoints returns the API addresses of all members.
func (w *world) endpoints() []string {
	var all []string
	for _, m := range w.members {
		all = append(all, m.api)
	}
	return all
}

// heal repairs all faults. The nemesis must have ended. It does not wait after ctx ends.
func (w *world) heal(ctx context.Context) error {
	var errs []error
	if w.network.namespaces {
		errs = append(errs, w.network.heal())
	}
	for _, m := range w.redisNodes {
		errs = append(errs, m.setClockOffset(0), m.revive(ctx))
	}
	for _, m := range w.members {
		m.process.Resume()
		errs = append(errs, m.revive())
	}
	for _, v := range w.workers {
		v.process.Resume()
	}
	if !until(ctx, startLimit, func() bool { return w.database.answers(ctx) }) {
		errs = append(errs, fmt.Errorf("%s did not recover within %v", storageName, startLimit))
	}
	if w.locks != nil && !until(ctx, startLimit, func() bool { return w.locks.answers(ctx) }) {
		errs = append(errs, fmt.Errorf("%s did not recover within %v", locksName, startLimit))
	}
	return errors.Join(errs...)
}

// stop stops all processes of the run.
func (w *world) stop() {
	for _, v := range w.workers {
		v.process.Kill()
	}
	for _, m := range w.members {
		if m.process != nil {
			m.process.Kill()
		}
	}
	for _, m := range w.redisNodes {
		m.server.Close()
	}
	if w.database != nil {
		w.database.pool.Close()
	}
	if w.postgres != nil {
		w.postgres.Stop()
	}
	if w.locks != nil {
		w.locks.stop()
	}
	if w.network.namespaces {
		w.network.remove(memberCount)
	}
}
