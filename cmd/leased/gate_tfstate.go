package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/cmd/leased/internal/tfstate"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate/objectgate"
)

// tfstateFlags are the flags of gate tfstate.
type tfstateFlags struct {
	access                  *access
	listen, cert, key       string
	users, prefix           string
	files, bucket, database string
}

func setUpGateTFState(c *cobra.Command) {
	f := &tfstateFlags{access: addRedisAccess(c)}
	flags := c.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8092", "listen address for Terraform and OpenTofu")
	flags.StringVar(&f.cert, "listen-cert", "", "PEM file with the certificate of this server; enables TLS")
	flags.StringVar(&f.key, "listen-key", "", "PEM file with the key of the certificate")
	flags.StringVar(&f.users, "users-file", "", "file with a line USER:PASSWORD for each user, for Basic authentication")
	flags.StringVar(&f.prefix, "prefix", "tfstate/", "prefix of the names of the locks, before the path of the URL")
	flags.StringVar(&f.files, "files", "", "keep the states in this folder")
	flags.StringVar(&f.bucket, "s3", "", "keep the states in this bucket, BUCKET or BUCKET/PREFIX; AWS_ENDPOINT_URL, "+
		"AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN say where it is")
	flags.StringVar(&f.database, "database", "", "keep the states in this PostgreSQL database, as a URL or as key=value "+
		"words; PGPASSWORD or PGPASSFILE gives the password")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop := untilInterrupted(c.Context())
		defer stop()
		return f.run(ctx, c)
	}
}

// storage returns the storage that the flags name.
func (f *tfstateFlags) storage(ctx context.Context) (tfstate.Storage, error) {
	switch {
	case !exactlyOne(f.files, f.bucket, f.database):
		return nil, usageError(errors.New("give one of --files, --s3 and --database to say where the states are kept"))
	case f.files != "":
		return tfstate.Files(f.files)
	case f.database != "":
		pool, err := pgxpool.New(ctx, f.database)
		if err != nil {
			return nil, usageError(fmt.Errorf("--database: %w", err))
		}
		return tfstate.Postgres(ctx, pool)
	}
	options := s3.Options{Region: fromEnv("AWS_REGION", "us-east-1"),
		Credentials: credentials.NewStaticCredentialsProvider(
			os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), os.Getenv("AWS_SESSION_TOKEN"))}
	if endpoint := os.Getenv("AWS_ENDPOINT_URL"); endpoint != "" {
		options.BaseEndpoint, options.UsePathStyle = &endpoint, true
	}
	bucket, prefix, _ := strings.Cut(f.bucket, "/")
	gate := objectgate.New(s3.New(options), bucket, fencing.Rule{}, objectgate.Prefix(prefix))
	if err := gate.Verify(ctx, "leased-probe"); err != nil {
		return nil, fmt.Errorf("--s3: %w", err)
	}
	return tfstate.Objects(gate), nil
}

// secure refuses to show states, which contain secrets, to everyone who reaches the port.
func (f *tfstateFlags) secure() error {
	host, _, err := net.SplitHostPort(f.listen)
	if err != nil {
		return fmt.Errorf("--listen %q: %w; give HOST:PORT", f.listen, err)
	}
	if (f.cert == "") != (f.key == "") {
		return errors.New("--listen-cert and --listen-key must be given together")
	}
	ip := net.ParseIP(host)
	if local := host == "localhost" || ip != nil && ip.IsLoopback(); !local && (f.cert == "" || f.users == "") {
		return fmt.Errorf("--listen %q is not a loopback address, and states contain secrets: give --users-file, "+
			"--listen-cert and --listen-key", f.listen)
	}
	return nil
}

func (f *tfstateFlags) run(ctx context.Context, c *cobra.Command) error {
	if err := f.secure(); err != nil {
		return usageError(err)
	}
	slog.SetDefault(newLogger(&settings.Settings{}))
	config := tfstate.Config{Prefix: f.prefix, Log: slog.Default()}
	if f.users != "" {
		users, err := readPasswords(f.users)
		if err != nil {
			return usageError(fmt.Errorf("--users-file: %w", err))
		}
		config.Users = users
	}
	storage, err := f.storage(ctx)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	host, _ := os.Hostname()
	locks, err := f.access.dial(ctx, client.WithLeaseOptions(lease.WithName("gate tfstate at "+host)))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: tfstate.New(locks, storage, config), ReadHeaderTimeout: 10 * time.Second}
	scheme := "http"
	if f.cert != "" {
		if _, err := tls.LoadX509KeyPair(f.cert, f.key); err != nil {
			return usageError(fmt.Errorf("--listen-cert, --listen-key: %w", err))
		}
		// Read the files again for each connection, so that they can be renewed.
		server.TLSConfig = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			certificate, err := tls.LoadX509KeyPair(f.cert, f.key)
			return &certificate, err
		}}
		scheme = "https"
	}
	ended := make(chan error, 1)
	go func() {
		if scheme == "https" {
			ended <- server.ServeTLS(listener, "", "")
		} else {
			ended <- server.Serve(listener)
		}
	}()
	fmt.Fprintf(c.OutOrStdout(), "gate tfstate: listen %s://%s\n", scheme, listener.Addr())
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// The locks are left to expire: a run that is still in progress can write its state
	// through the next process, unless another run has locked it by then.
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return server.Shutdown(drain)
}

// readPasswords reads the lines of a file as USER:PASSWORD. Empty lines and lines that
// begin with # are ignored.
func readPasswords(name string) (map[string]string, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	users := map[string]string{}
	for i, line := range strings.Split(string(data), "\n") {
		line, number := strings.TrimSpace(line), i+1
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		user, password, ok := strings.Cut(line, ":")
		if !ok || user == "" || password == "" {
			return nil, fmt.Errorf("%s:%d is not USER:PASSWORD", name, number)
		}
		if users[user] != "" {
			return nil, fmt.Errorf("%s:%d names the user %s again", name, number, user)
		}
		users[user] = password
	}
	if len(users) == 0 {
		return nil, fmt.Errorf("%s has no users", name)
	}
	return users, nil
}
