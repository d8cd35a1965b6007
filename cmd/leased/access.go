package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/internal/remote"
	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
)

const (
	defaultEndpoint = "127.0.0.1:7420"
	// connectTimeout bounds the time to connect to one endpoint.
	connectTimeout = 3 * time.Second
	// firstConnect bounds it if there are other endpoints: a stopped member must not block
	// a command.
	firstConnect = time.Second
)

// access is how a command reaches the service: flags that all commands share.
type access struct {
	endpoint              string
	caFile, cert, keyFile string
	secretFile            string
	flags                 *pflag.FlagSet // nil if the values come from no command line
}

// addAccess adds the flags to a command. The environment provides their defaults.
// That of secret-file is read on use, because --help prints defaults and the
// variable may contain a secret by mistake.
func addAccess(c *cobra.Command) *access {
	flags := c.Flags()
	a := &access{flags: flags}
	fromEnvironment(flags, &a.endpoint, "endpoint", defaultEndpoint,
		"API addresses of the members, HOST:PORT, separated by commas")
	fromEnvironment(flags, &a.caFile, "tls-ca", "", "PEM file with the CA of the members' certificates; enables TLS")
	fromEnvironment(flags, &a.cert, "tls-cert", "", "PEM file with your certificate, if the service requires one")
	fromEnvironment(flags, &a.keyFile, "tls-key", "", "PEM file with the key of your certificate")
	flags.StringVar(&a.secretFile, "secret-file", "", "file with your secret from 'leased user add', if the service "+
		"has users ("+clientVariable("secret-file")+", or the secret itself in LEASED_SECRET)")
	return a
}

// clientVariable returns the environment variable of a flag. A flag with the credentials of a user does not use the
// variable of the `leased serve` setting with the same name: the credentials of a user must not become the
// credentials of a member, nor the other way round.
func clientVariable(flag string) string {
	switch flag {
	case "tls-ca", "tls-cert", "tls-key", "secret-file":
		return settings.Variable("client-" + flag)
	}
	return settings.Variable(flag)
}

// value returns the name and the value of a flag for an error, with the environment
// variable if the value comes from there.
func (a *access) value(flag, value string) string {
	variable := clientVariable(flag)
	if _, set := os.LookupEnv(variable); set && a.flags != nil && !a.flags.Changed(flag) {
		return fmt.Sprintf("%s (%s, from %s)", flag, value, variable)
	}
	return fmt.Sprintf("%s (%s)", flag, value)
}

// fromEnvironment adds a flag whose default an environment variable provides.
func fromEnvironment(flags *pflag.FlagSet, to *string, name, fallback, usage string) {
	variable := clientVariable(name)
	flags.StringVar(to, name, fromEnv(variable, fallback), usage+" ("+variable+")")
}

func fromEnv(name, fallback string) string {
	if value, ok := os.LookupEnv(name); ok {
		return value
	}
	return fallback
}

// endpoints returns the addresses in the order in which call tries them.
func (a *access) endpoints() ([]string, error) {
	all := settings.Split(a.endpoint)
	for _, part := range all {
		if _, port, err := net.SplitHostPort(part); err != nil || port == "" {
			return nil, usageError(fmt.Errorf("%s must be HOST:PORT, such as %s", a.value("endpoint", part), defaultEndpoint))
		}
	}
	if len(all) == 0 {
		return nil, usageError(fmt.Errorf("%s must name a member, HOST:PORT", a.value("endpoint", "empty")))
	}
	return all, nil
}

// tls returns nil without tls-ca: then the service must not use TLS.
func (a *access) tls() (*tls.Config, error) {
	if a.caFile == "" {
		if a.cert != "" {
			return nil, usageError(fmt.Errorf("%s needs tls-ca", a.value("tls-cert", a.cert)))
		}
		return nil, nil //nolint:nilnil // nil means no TLS
	}
	config, err := settings.TLS(a.caFile, a.cert, a.keyFile, a.value)
	if err != nil {
		return nil, usageError(err)
	}
	return config, nil
}

// secret returns "" if none was given: then the service must have no users.
func (a *access) secret() (string, error) {
	path := cmp.Or(a.secretFile, os.Getenv(clientVariable("secret-file")))
	text, given := os.LookupEnv("LEASED_SECRET")
	switch {
	case given && path != "":
		return "", usageError(fmt.Errorf("secret-file (%s) and LEASED_SECRET are both set; give one", path))
	case given:
		if err := secret.Check(text); err != nil {
			return "", usageError(fmt.Errorf("LEASED_SECRET is %w", err))
		}
		return text, nil
	case path == "":
		return "", nil
	}
	text, err := secret.ReadFile(path)
	if err != nil {
		return "", usageError(fmt.Errorf("%s: %w", a.value("secret-file", path), err))
	}
	return text, nil
}

// connect connects to one address. An error means that nothing was sent.
func (a *access) connect(ctx context.Context, address string, limit time.Duration) (*grpc.ClientConn, error) {
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
	conn, err := grpc.NewClient("passthrough:///"+address, secret.DialOptions(config, own)...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn.Connect()
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return conn, nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			defer conn.Close()
			return nil, a.connectError(ctx, address, config, conn)
		}
		if !conn.WaitForStateChange(ctx, state) {
			conn.Close()
			return nil, fmt.Errorf("connect to %s: %w: no connection within %v", address, wire.ErrUnreachable, limit)
		}
	}
}

// connectError returns the error of a connection that failed. gRPC reports the reason only
// as the error of a call.
func (a *access) connectError(ctx context.Context, address string, config *tls.Config, conn *grpc.ClientConn) error {
	_, err := newAPI(conn).Health(ctx, &pb.HealthRequest{})
	text := status.Convert(err).Message()
	if config != nil {
		alert := rejection(ctx, address, config)
		if slices.ContainsFunc(certificateAlerts, func(known string) bool { return strings.Contains(alert, known) }) {
			return &codeError{wire.ExitRefused, fmt.Errorf("connect to %s: %w", address, a.certificateError(alert))}
		}
	}
	if strings.Contains(text, "failed to verify certificate") {
		return &codeError{wire.ExitRefused, fmt.Errorf("connect to %s: %s %w; give the CA of the members: %s", address,
			a.value("tls-ca", a.caFile), errAuthority, text)}
	}
	if config == nil && strings.Contains(text, "error reading server preface") {
		text += "; if the service uses TLS, give --tls-ca"
	}
	return fmt.Errorf("connect to %s: %w: %s", address, wire.ErrUnreachable, text)
}

// rejection connects with TLS and returns the error of the service, "" if it sends none.
// It sends nothing after the handshake: a connection that was closed while gRPC writes
// loses the alert.
func rejection(ctx context.Context, address string, config *tls.Config) string {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	config = config.Clone()
	config.NextProtos = []string{"h2"}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err == nil {
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		_, err = conn.Read(make([]byte, 1))
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// certificateAlerts are the errors of TLS with which a service rejects the certificate of
// a client.
var certificateAlerts = []string{
	"remote error: tls: certificate required", "remote error: tls: bad certificate",
	"remote error: tls: unknown certificate authority", "remote error: tls: unknown certificate",
	"remote error: tls: expired certificate", "remote error: tls: certificate unknown"}

// errCertificate means that the service rejects the client's certificate, or its lack.
var errCertificate = errors.New("the service requires a client certificate that its tls-ca has signed")

// errAuthority means that the caller has the wrong CA.
var errAuthority = errors.New("does not verify the certificate of the member")

// certificateError says which certificate is missing or rejected.
func (a *access) certificateError(alert string) error {
	if a.cert == "" {
		return fmt.Errorf("%w, and none was given; give --tls-cert and --tls-key, or "+
			"LEASED_CLIENT_TLS_CERT and LEASED_CLIENT_TLS_KEY", errCertificate)
	}
	_, reason, _ := strings.Cut(alert, "remote error: ")
	return fmt.Errorf("%w, and rejects %s: %s; give another one with --tls-cert and --tls-key", errCertificate,
		a.value("tls-cert", a.cert), strings.TrimSuffix(reason, `"`))
}

// call runs f on the first member that serves it. It tries each endpoint once, and
// the leader that another member names. It continues only after a member that
// cannot be reached, does not lead or rejects the caller's secret: then nothing has
// happened. Members reload their users one after the other, so one may know
// the caller before another.
func (a *access) call(ctx context.Context, f func(api) error) error {
	if dsn := a.postgres(); dsn != "" {
		return callPostgres(ctx, dsn, f)
	}
	addresses, err := a.endpoints()
	if err != nil {
		return err
	}
	var unreachable, rejected error
	var notLeader *wire.NotLeaderError
	rejectedBy := map[string]bool{}
	given, reached := len(addresses), 0
	for i := 0; i < len(addresses); i++ {
		limit := connectTimeout
		if i < len(addresses)-1 {
			limit = firstConnect
		}
		conn, err := a.connect(ctx, addresses[i], limit)
		if wrong := (*codeError)(nil); errors.As(err, &wrong) && wrong.code == wire.ExitUsage {
			return err // as it would be for the other members
		}
		if err != nil {
			unreachable = errors.Join(unreachable, err)
			continue
		}
		err = callWatched(ctx, conn, addresses[i], f)
		reached++
		switch {
		case errors.Is(err, wire.ErrUnauthenticated) && !errors.Is(err, lease.ErrUncertain):
			rejected, rejectedBy[addresses[i]] = err, true
		case errors.As(err, &notLeader):
			if leader := notLeader.Leader; leader != "" && !slices.Contains(addresses, leader) {
				addresses = append(addresses, leader)
			}
		default:
			return a.explainNoLeader(ctx, err, reached, given)
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case rejected != nil && (notLeader == nil || rejectedBy[notLeader.Leader]):
		return rejected
	case notLeader != nil:
		return a.explainNoLeader(ctx, notLeader, reached, given)
	}
	return unreachable
}

// callWatched runs f on a connection and closes it, also while f is running if the member no
// longer answers.
func callWatched(ctx context.Context, conn *grpc.ClientConn, address string, f func(api) error) error {
	watched := make(chan error, 1)
	watching, cancel := context.WithCancel(ctx)
	go func() {
		err := remote.WatchSilence(watching, conn)
		if errors.Is(err, remote.ErrSilent) {
			conn.Close()
		}
		watched <- err
	}()
	err := callError(f(newAPI(conn)))
	cancel()
	conn.Close()
	if silent := <-watched; errors.Is(silent, remote.ErrSilent) && errors.Is(err, lease.ErrUncertain) {
		return fmt.Errorf("call %s: %w", address, silent)
	}
	return err
}

// readError returns the error of a call that changes nothing: if no answer came, nothing
// is uncertain, and the call can be repeated.
func readError(err error) error {
	if !errors.Is(err, lease.ErrUncertain) {
		return err
	}
	reason := strings.ReplaceAll(err.Error(), lease.ErrUncertain.Error()+": ", "")
	return fmt.Errorf("%w: no answer: %s; try again", lease.ErrUnavailable, reason)
}

// callError decodes the error of a gRPC call. Errors of the command itself stay as
// they are.
func callError(err error) error {
	if _, ok := status.FromError(err); !ok {
		return err
	}
	return wire.FromStatus(err)
}
