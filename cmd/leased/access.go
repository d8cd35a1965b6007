package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/remote/secret"
	"github.com/leased-project/leased/lease/remote/wire"
)

const (
	defaultEndpoint = "127.0.0.1:7420"
	// connectTime bounds how long one endpoint may take to answer.
	connectTime = 3 * time.Second
	// electionTime is how long a command waits for the members to elect a
	// leader, electionPause the time between two looks.
	electionTime  = 10 * time.Second
	electionPause = 200 * time.Millisecond
	// silentTime is how long a member may say nothing before it is asked whether
	// it is alive: one that is stopped must not keep a watch waiting.
	silentTime = 10 * time.Second
)

// errUnreached: no member was reached, so nothing was asked of the service.
var errUnreached = fmt.Errorf("%w: no member was reached", lease.ErrUnavailable)

// access is how a command reaches the service: flags that all of them share.
type access struct {
	endpoint              string
	caFile, cert, keyFile string
	secretFile            string
}

// addAccess adds the flags to a command. The environment gives their defaults;
// that of secret-file is read when it is used, since --help prints defaults, and a
// secret may have got there.
func addAccess(c *cobra.Command) *access {
	a := &access{}
	flags := c.Flags()
	flags.StringVar(&a.endpoint, "endpoint", fromEnv("LEASED_ENDPOINT", defaultEndpoint), "APIs of the members, as host:port, separated by commas (LEASED_ENDPOINT)")
	flags.StringVar(&a.caFile, "tls-ca", fromEnv("LEASED_TLS_CA", ""), "authority that signed the members' certificates, PEM file (LEASED_TLS_CA)")
	flags.StringVar(&a.cert, "tls-cert", fromEnv("LEASED_TLS_CERT", ""), "own certificate, PEM file, where the service asks for one (LEASED_TLS_CERT)")
	flags.StringVar(&a.keyFile, "tls-key", fromEnv("LEASED_TLS_KEY", ""), "key of the own certificate, PEM file (LEASED_TLS_KEY)")
	flags.StringVar(&a.secretFile, "secret-file", "", "file with your secret, of leased user add, where the service has users (LEASED_SECRET_FILE, or the secret itself in LEASED_SECRET)")
	return a
}

func fromEnv(name, byDefault string) string {
	if value, ok := os.LookupEnv(name); ok {
		return value
	}
	return byDefault
}

// endpoints are the addresses, in the order in which they are tried.
func (a *access) endpoints() ([]string, error) {
	var all []string
	for part := range strings.SplitSeq(a.endpoint, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		if _, port, err := net.SplitHostPort(part); err != nil || port == "" {
			return nil, usageError(fmt.Errorf("endpoint (%s) must be host:port, as %s", part, defaultEndpoint))
		}
		all = append(all, part)
	}
	if len(all) == 0 {
		return nil, usageError(errors.New("endpoint is empty; give host:port of a member"))
	}
	return all, nil
}

// tls is nil if no authority was named: then the service must not use TLS.
func (a *access) tls() (*tls.Config, error) {
	if a.caFile == "" {
		if a.cert != "" {
			return nil, usageError(fmt.Errorf("tls-cert (%s) needs tls-ca", a.cert))
		}
		return nil, nil //nolint:nilnil // nil is no TLS
	}
	text, err := os.ReadFile(a.caFile)
	if err != nil {
		return nil, usageError(fmt.Errorf("read tls-ca: %w", err))
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, usageError(fmt.Errorf("tls-ca (%s) must have a certificate in PEM form", a.caFile))
	}
	if a.cert != "" {
		own, err := tls.LoadX509KeyPair(a.cert, a.keyFile)
		if err != nil {
			return nil, usageError(fmt.Errorf("read tls-cert (%s) and tls-key (%s): %w", a.cert, a.keyFile, err))
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// secret is empty if none was given: then the service must have no users.
func (a *access) secret() (string, error) {
	path := a.secretFile
	if path == "" {
		path = os.Getenv("LEASED_SECRET_FILE")
	}
	text, given := os.LookupEnv("LEASED_SECRET")
	switch {
	case given && path != "":
		return "", usageError(fmt.Errorf("secret-file (%s) and LEASED_SECRET exclude each other", path))
	case given:
		if err := secret.Check(text); err != nil {
			return "", usageError(fmt.Errorf("LEASED_SECRET has %w", err))
		}
		return text, nil
	case path == "":
		return "", nil
	}
	text, err := secret.ReadFile(path)
	if err != nil {
		return "", usageError(fmt.Errorf("secret-file: %w", err))
	}
	return text, nil
}

// connect connects to one address. That it fails says that nothing was sent.
func (a *access) connect(ctx context.Context, address string) (*grpc.ClientConn, error) {
	config, err := a.tls()
	if err != nil {
		return nil, err
	}
	own, err := a.secret()
	if err != nil {
		return nil, err
	}
	if err := secret.CheckAddress(address, config, own); err != nil {
		return nil, usageError(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+address, append(secret.DialOptions(config, own),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: silentTime, Timeout: connectTime}))...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	conn.Connect()
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return conn, nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			defer conn.Close()
			return nil, fmt.Errorf("%w at %s: %w", errUnreached, address, a.whyNot(ctx, conn))
		}
		if !conn.WaitForStateChange(ctx, state) {
			conn.Close()
			return nil, fmt.Errorf("%w at %s within %v", errUnreached, address, connectTime)
		}
	}
}

// whyNot is why a connection failed: a call that does not wait is told.
func (a *access) whyNot(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := pb.NewClusterServiceClient(conn).Health(ctx, &pb.HealthRequest{})
	text := status.Convert(err).Message()
	if a.caFile == "" && strings.Contains(text, "error reading server preface") {
		text += "; does the service use TLS? Give --tls-ca then"
	}
	return errors.New(text)
}

// onAny runs a call on the first endpoint that can be reached and lets the caller
// in: members read their users again one after the other.
func (a *access) onAny(ctx context.Context, call func(*grpc.ClientConn) error) error {
	addresses, err := a.endpoints()
	if err != nil {
		return err
	}
	var failed, refused error
	for _, address := range addresses {
		conn, err := a.connect(ctx, address)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		defer conn.Close()
		if err = fromCall(call(conn)); !atTheDoor(err) {
			return err
		}
		refused = err
	}
	if refused != nil {
		return refused
	}
	return failed
}

// atTheDoor reports whether a member has refused a call because it does not know
// the caller, so that nothing has happened.
func atTheDoor(err error) bool {
	return errors.Is(err, wire.ErrUnauthenticated) && !errors.Is(err, lease.ErrUncertain)
}

// fromCall is the error of a call; one that the command made itself stays.
func fromCall(err error) error {
	if _, ok := status.FromError(err); !ok {
		return err
	}
	return wire.FromStatus(err)
}

// onLeader runs a call on the leader. Members that do not lead say who does;
// while none does it waits a little. A call that may have arrived is not
// repeated. A member that does not know the caller may not have read its users
// again yet: the others are asked too. If the leader is the one it is over.
func (a *access) onLeader(ctx context.Context, call func(*grpc.ClientConn) error) error {
	addresses, err := a.endpoints()
	if err != nil {
		return err
	}
	patience := time.NewTimer(electionTime)
	defer patience.Stop()
	var failed, answered, refused error // answered: what a member said, which counts more than one that is down
	refusedBy := map[string]bool{}
	for {
		reached, hope := false, false // someone has let it in; and has named no leader that does not
		for i := 0; i < len(addresses); i++ {
			if refusedBy[addresses[i]] {
				continue
			}
			conn, err := a.connect(ctx, addresses[i])
			if err != nil {
				failed = err
				continue
			}
			err = fromCall(call(conn))
			conn.Close()
			if atTheDoor(err) {
				refusedBy[addresses[i]], refused = true, err
				continue
			}
			var not *wire.NotLeaderError
			if !errors.As(err, &not) {
				return err
			}
			reached, hope = true, hope || !refusedBy[not.Leader]
			answered = err
			if not.Leader != "" && !slices.Contains(addresses, not.Leader) {
				addresses = append(addresses, not.Leader)
			}
		}
		if !hope && refused != nil {
			return refused
		}
		if !reached && answered == nil {
			return failed
		}
		select {
		case <-time.After(electionPause):
		case <-patience.C:
			return answered
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
