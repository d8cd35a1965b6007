package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/postgres"
)

// A command with this flag, or with the variable, uses locks in a PostgreSQL database. The
// variable is read on use, because --help prints defaults and it may contain a password.
const (
	postgresFlag     = "postgres"
	postgresVariable = "LEASED_POSTGRES"
	postgresUsage    = "use locks in this PostgreSQL database, without a service, such as " +
		"postgres://USER@HOST/DATABASE (" + postgresVariable + ")"
)

// postgresCommands work with locks in a database.
var postgresCommands = []string{"run", "acquire", "renew", "release", "inspect", "list", "top", "break", "gate reset",
	"postgres import", "postgres export"}

// postgres returns the connection string of the database that has the locks, "" for a
// service. The flag endpoint overrides the variable.
func (a *access) postgres() string {
	if a.flags == nil || a.flags.Lookup(postgresFlag) == nil {
		return ""
	}
	if a.flags.Changed(postgresFlag) || a.flags.Changed("endpoint") {
		return a.flags.Lookup(postgresFlag).Value.String()
	}
	return os.Getenv(postgresVariable)
}

// checkPostgres refuses a command that does not work with the locks that the flags name.
func checkPostgres(c *cobra.Command) error {
	path := strings.TrimPrefix(c.CommandPath(), "leased ")
	both := strings.HasPrefix(path, "postgres ") // a move needs both
	given := c.Flags().Changed(postgresFlag)
	switch {
	case given && c.Flags().Lookup(postgresFlag).Value.String() == "": // as from an unset variable
		return usageError(errors.New("--postgres is empty; give a database, or leave it out to use the service"))
	case slices.Contains(postgresCommands, path):
		if given && c.Flags().Changed("endpoint") && !both {
			return usageError(errors.New("--postgres and --endpoint cannot be combined: locks are in a database or in a " +
				"service"))
		}
	case given && path == "watch":
		return usageError(errors.New("watch does not work with --postgres: a database reports no events; use 'leased list " +
			"--watch' or 'leased top'"))
	case given:
		return usageError(fmt.Errorf("%s does not work with --postgres; the commands that do are %s", path,
			strings.Join(postgresCommands, ", ")))
	case path == "gate proxy" || path == "health": // they may do without a service
	case c.Flags().Lookup("endpoint") != nil && (&access{flags: c.Flags()}).postgres() != "" &&
		(os.Getenv("LEASED_ENDPOINT") == "" || path == "gate tfstate"): // it takes locks, as run does
		return usageError(fmt.Errorf("%s needs a lock service, and %s selects locks in a database; give the address of a "+
			"service with --endpoint", path, postgresVariable))
	}
	return nil
}

// openPostgres connects to the locks in a database.
func openPostgres(ctx context.Context, dsn string, logger *slog.Logger) (*pgxpool.Pool, *postgres.Backend, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, usageError(fmt.Errorf("--%s or %s: %w", postgresFlag, postgresVariable, err))
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	backend, err := postgres.New(ctx, pool, logger)
	if err != nil {
		pool.Close()
		return nil, nil, postgresError(err)
	}
	return pool, backend, nil
}

// postgresError replaces hints that are about a service.
func postgresError(err error) error {
	if errors.Is(err, lease.ErrForbidden) {
		return &codeError{wire.ExitForbidden, fmt.Errorf("%w; see docs/POSTGRES.md for the rights that a role needs", err)}
	}
	return err
}

// withPostgres calls f with the locks in a database.
func withPostgres(ctx context.Context, dsn string, f func(*postgres.Backend) error) error {
	pool, backend, err := openPostgres(ctx, dsn, slog.New(&plainHandler{out: os.Stderr, level: slog.LevelWarn}))
	if err != nil {
		return err
	}
	defer pool.Close()
	defer backend.Close()
	return postgresError(f(backend))
}

// callPostgres calls f with the locks in a database in the place of a service.
func callPostgres(ctx context.Context, dsn string, f func(api) error) error {
	return withPostgres(ctx, dsn, func(backend *postgres.Backend) error {
		service := newAPI(noService{})
		service.LeaseServiceClient = &postgresLocks{LeaseServiceClient: service.LeaseServiceClient, backend: backend}
		return f(service)
	})
}

func setUpPostgresDDL(c *cobra.Command) {
	c.RunE = func(c *cobra.Command, _ []string) error {
		_, err := fmt.Fprint(c.OutOrStdout(), postgres.DDL())
		return err
	}
}

// postgresMove has the flags of a command that moves a lock between a service and a database.
type postgresMove struct {
	service  *access
	output   *output
	database string
	wait     time.Duration
}

// exportTime bounds the calls of an export to the database. It is shorter than the time for which hold has the lock.
const exportTime = 20 * time.Second

// moved is the outcome of a move.
type moved struct {
	Resource string        `json:"resource"`
	Token    fencing.Token `json:"token"` // of the lock where it was
	Next     fencing.Token `json:"next"`  // a token of the lock where it is now
}

// moveCommand sets up a command that moves a lock.
func moveCommand(c *cobra.Command, to string, move func(ctx context.Context, m *postgresMove, backend *postgres.Backend,
	resource string) (moved, error)) {
	c.Args = exactly(1, "the name of a lock")
	flags := c.Flags()
	m := &postgresMove{service: addAccess(c), output: addOutput(c)}
	m.service.flags = nil // always the service
	flags.DurationVar(&m.wait, "wait", 30*time.Second, "how long to wait until the lock is free at the service")
	c.RunE = interruptible(func(c *cobra.Command, args []string) error {
		if m.database, _ = flags.GetString(postgresFlag); m.database == "" {
			m.database = os.Getenv(postgresVariable)
		}
		if m.database == "" {
			return usageError(fmt.Errorf("--%s or %s is required: the database of the locks", postgresFlag, postgresVariable))
		}
		ctx := c.Context()
		return withPostgres(ctx, m.database, func(backend *postgres.Backend) error {
			done, err := move(ctx, m, backend, args[0])
			if err != nil {
				return err
			}
			return m.output.print(c, done, func(t *tabwriter.Writer) {
				fmt.Fprintf(t, "%s: its tokens were at most %d until now; the %s grants larger ones, starting above %d\n",
					done.Resource, done.Token, to, done.Next-1)
			})
		})
	})
}

// hold acquires the lock at the service, so that it has no other holder, and calls f with its
// token.
func (m *postgresMove) hold(ctx context.Context, resource string, f func(fencing.Token) error) error {
	got, err := m.service.acquire(ctx, &pb.AcquireRequest{Resource: resource, Ttl: "1m", Wait: m.wait.String(),
		Holder: defaultHolder()})
	if err != nil {
		return err
	}
	return errors.Join(f(fencing.Token(got.Token)), m.service.release(ctx, resource, got.Token))
}

// setUpPostgresImport moves a lock from the service to the database: all tokens of the
// database become larger than those that the service granted.
func setUpPostgresImport(c *cobra.Command) {
	moveCommand(c, "database", func(ctx context.Context, m *postgresMove, backend *postgres.Backend,
		resource string) (done moved, err error) {
		err = m.hold(ctx, resource, func(token fencing.Token) error {
			last, err := backend.Raise(ctx, token)
			if err != nil {
				return err
			}
			done = moved{resource, token, last + 1}
			status, err := backend.Inspect(ctx, fencing.Resource(resource))
			if err != nil || len(status.Holders) == 0 || status.Holders[0].TTL < 2*lease.MaxTTL {
				return err
			}
			return backend.Break(ctx, fencing.Resource(resource), status.Holders[0].Token) // an export has closed it
		})
		return done, err
	})
}

// setUpPostgresExport moves a lock from the database to the service, if the service grants
// larger tokens. It holds the lock at the service meanwhile, so there is no other export of the lock.
func setUpPostgresExport(c *cobra.Command) {
	moveCommand(c, "service", func(ctx context.Context, m *postgresMove, backend *postgres.Backend,
		resource string) (done moved, err error) {
		err = m.hold(ctx, resource, func(token fencing.Token) error {
			ctx, cancel := context.WithTimeout(ctx, exportTime)
			defer cancel()
			last, closed, err := backend.CloseLock(ctx, fencing.Resource(resource))
			if err == nil && token > last {
				done = moved{resource, last, token}
				return nil
			}
			if err == nil {
				err = &codeError{wire.ExitRefused,
					fmt.Errorf("the tokens of the service are too small: it grants %d, and the database has granted up to %d; "+
						"raise those of the service by 2^32 with `leased snapshot save FILE` and `leased snapshot restore FILE "+
						"--yes`, which ends all leases in correctness mode, and export again", token, last)}
			}
			if closed { // a lock that an earlier export has closed may have been moved: the service may grant it
				undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), exportTime)
				defer cancel()
				err = errors.Join(err, backend.Break(undo, fencing.Resource(resource), last))
			}
			return err
		})
		return done, err
	})
}
