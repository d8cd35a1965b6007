package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/internal/server"
	"github.com/leased-project/leased/internal/server/admin"
	"github.com/leased-project/leased/internal/server/audit"
	"github.com/leased-project/leased/internal/server/httpapi"
	"github.com/leased-project/leased/internal/server/metrics"
	"github.com/leased-project/leased/internal/server/observe"
	"github.com/leased-project/leased/internal/server/tracing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

const (
	// transferTimeout bounds the transfer of leadership on stop.
	transferTimeout = 5 * time.Second
	// successorTimeout bounds the wait for the new leader after a transfer.
	successorTimeout = 3 * time.Second
)

// Member is a running member of the service.
type Member struct {
	settings *settings.Settings
	logger   *slog.Logger
	certs    *certificates
	creds    *credentials
	signing  signing
	peers    *peers
	node     *raftstore.Node
	server   *server.Server
	audit    *audit.Log
	metrics  *metrics.Metrics
	policies atomic.Pointer[[]lease.Policy] // of the configuration file
	founded  atomic.Bool                    // this process has created the cluster
	reloaded chan struct{}

	tracer  *tracing.Tracer               // nil if calls are not traced
	ports   []*http.Server                // of probes and profiles
	probing sync.WaitGroup                // serves ports
	serving atomic.Pointer[server.Server] // server, once it is complete

	cancel context.CancelFunc
	work   sync.WaitGroup
	failed chan error // has room for the API, the formation and each port
}

// Start starts a member. It returns when the API answers; forming the cluster may
// take longer. version is the version that the API reports.
func Start(ctx context.Context, s *settings.Settings, version string, plain *slog.Logger) (*Member, error) {
	logger := plain.With("id", s.ID)
	m := &Member{settings: s, logger: logger, reloaded: make(chan struct{}, 1), failed: make(chan error, 4)}
	m.metrics = metrics.New(version, admin.BuildInfo(version).Commit)
	m.policies.Store(&s.Policies)
	var err error
	if m.certs, err = newCertificates(s); err != nil {
		return nil, s.Invalid(err, "tls-cert", "tls-key", "tls-ca")
	}
	m.certs.report(logger)
	if m.creds, err = newCredentials(s, logger); err != nil {
		return nil, s.Invalid(err, "users", "secret-file")
	}
	signer, err := readSigner(s.SigningKeyFile)
	if err != nil {
		return nil, s.Invalid(err, "signing-key-file")
	}
	m.signing.replace(signer, logger)
	if err := s.RedisNodes.Check(s.Redis); err != nil {
		return nil, s.Invalid(err, "redis-password-file", "redis-tls-ca", "redis-tls-cert", "redis-tls-key")
	}
	if m.audit, err = audit.Open(audit.Config{Path: s.AuditFile, Member: s.ID, Logger: logger}); err != nil {
		return nil, s.Invalid(fmt.Errorf("audit-file (%s): %w", s.AuditFile, err), "audit-file")
	}
	started := false
	defer func() {
		if !started {
			m.stopDiagnostics()
			m.audit.Close()
		}
	}()
	probes := httpapi.ProbeServer(m.ready, m.metrics.Handler()) // early, because opening a large data folder takes time
	if err := errors.Join(m.serve("probes", s.ProbeListen, probes), m.startDiagnostics(version)); err != nil {
		return nil, err
	}
	m.peers = &peers{addresses: s.Join, tls: m.certs.config, secret: m.creds.secret, logger: logger}
	if err := claim(ctx, s, m.peers); err != nil {
		return nil, err
	}
	config := server.Config{Advertise: s.Advertise, TLS: m.certs.api(), PeerTLS: m.certs.config, Version: version,
		Users: m.creds.users, Secret: m.creds.secret, Logger: logger, Audit: m.audit, FilePolicies: m.filePolicies,
		Redis: s.Fleet(), RedisOptions: s.RedisNodes.Options, RedisTimeout: s.RedisTimeout,
		Limits: s.Limits, Signer: m.signing.key.Load, SignatureTTL: s.SignatureTTL, Metrics: m.metrics,
		Certificates: m.certs.expiries, Tracer: m.tracer, TimesFile: filepath.Join(s.Data, observe.FileName),
		Raft: raftConfig(s, m.certs, plain)}
	listener, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w; is another member running on this machine?", s.Listen, err)
	}
	if m.server, err = server.New(config, listener); err != nil {
		listener.Close()
		return nil, err
	}
	m.node = m.server.Node()
	m.run()
	started = true
	return m, nil
}

func raftConfig(s *settings.Settings, certs *certificates, logger *slog.Logger) raftstore.Config {
	return raftstore.Config{ID: s.ID, Dir: s.Data, Address: s.RaftListen, Advertise: s.RaftAdvertise, TLS: certs.raft(),
		LogStore: s.LogStore, HeartbeatTimeout: s.Heartbeat, StoreDeadline: s.DiskTimeout, Logger: logger}
}

// run serves the API and forms the cluster.
func (m *Member) run() {
	m.serving.Store(m.server)
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.work.Go(func() {
		if err := m.server.Serve(); err != nil {
			m.failed <- err
		}
	})
	m.work.Go(func() {
		if err := m.form(ctx); err != nil && ctx.Err() == nil {
			m.failed <- fmt.Errorf("form the cluster: %w", err)
		}
	})
	m.work.Go(func() { m.applyPolicies(ctx) })
}

// Failed returns a channel with the error that ends the member.
func (m *Member) Failed() <-chan error { return m.failed }

// Node returns the Raft node of the member.
func (m *Member) Node() *raftstore.Node { return m.node }

// Address returns the API address.
func (m *Member) Address() string { return m.server.Address() }

// Reload compares the policies of new settings with those in effect, and reloads the certificate, the CA,
// the users, the secret and the signing key. Other changes need a restart. If one of them is invalid,
// nothing changes.
func (m *Member) Reload(s *settings.Settings) error {
	fresh, err := m.creds.read()
	if err != nil {
		return err
	}
	signer, err := readSigner(s.SigningKeyFile)
	if err != nil {
		return err
	}
	if err := m.certs.reload(); err != nil {
		return err
	}
	m.certs.report(m.logger)
	for _, change := range userChanges(m.creds.listed, fresh.users) {
		m.audit.Write(context.Background(), change)
		m.logger.Info(userMessages[change.Event], "user", change.Subject, "rights", change.Detail)
	}
	m.node.RecheckPeers()
	m.creds.replace(fresh)
	m.signing.replace(signer, m.logger)
	if len(fresh.users) == 0 {
		m.creds.report(m.logger)
	}
	m.policies.Store(&s.Policies)
	select {
	case m.reloaded <- struct{}{}:
	default:
	}
	return nil
}

// Stop transfers leadership to another voter, if there is one, and stops the
// member. It releases no leases.
func (m *Member) Stop() error {
	m.server.Stopping()
	m.cancel()
	otherVoter := func(o raftstore.Member) bool { return o.Voter && o.ID != m.settings.ID }
	if m.node.Leads() && slices.ContainsFunc(m.node.Members(), otherVoter) {
		ctx, cancel := context.WithTimeout(context.Background(), transferTimeout)
		if err := m.node.Transfer(ctx, ""); err != nil {
			m.logger.Warn("could not transfer leadership; the other members will elect a leader", "error", err)
		} else {
			m.awaitSuccessor(ctx)
		}
		cancel()
	}
	err := m.server.Close()
	m.work.Wait()
	m.stopDiagnostics()
	m.audit.Close()
	return err
}

// ReopenAudit opens the file of the audit log again, after it was renamed.
func (m *Member) ReopenAudit() { m.audit.Reopen() }

// awaitSuccessor waits until another member leads, so that this one can redirect
// its clients.
func (m *Member) awaitSuccessor(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, successorTimeout)
	defer cancel()
	for {
		leader, _ := m.node.Leader()
		if leader != "" && leader != m.settings.ID || engine.Sleep(ctx, 10*time.Millisecond) != nil {
			return
		}
	}
}
