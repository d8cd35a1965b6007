//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/cmd/leased/internal/supervise"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/lease/remote/wire"
)

const (
	// guardCommand is the hidden command that a guard process runs.
	guardCommand = "run-guard"
	// holdCommand is the hidden command that becomes the user's command.
	holdCommand = "run-hold"
	// farewellTime bounds how long the service is told that a lease is free.
	farewellTime = 5 * time.Second
	// hurryTime is the same after a loss, when there is little to tell.
	hurryTime = time.Second
)

// runFlags are the flags of run.
type runFlags struct {
	access     *access
	ttl, grace time.Duration
	wait       time.Duration
	noWait     bool
	shared     bool
	permits    int
	mode       string
	holder     string
	quiet      bool
	redis      *redisFlags
	noRedis    bool
}

func newRun() *cobra.Command {
	f := &runFlags{}
	c := &cobra.Command{Use: "run RESOURCE [flags] -- COMMAND [ARGUMENT...]", Short: "Run a command under a lease",
		Long: "Run a command under a lease. Its environment has the token in LEASED_TOKEN and the name to give to a\n" +
			"gate in LEASED_RESOURCE. If the lease is lost, or cannot be renewed, the command's process group gets\n" +
			"SIGTERM before the lease's deadline, and SIGKILL after --grace, before that deadline too. That holds\n" +
			"when the network is cut, and when `leased run` itself is stopped or killed. Processes that leave the\n" +
			"group, as daemons do, are out of reach. Do not suspend it with Ctrl-Z: only the command would stop.\n\n" +
			"Signals are passed on to the process group. While it waits for the lock SIGINT, SIGTERM, SIGHUP and\n" +
			"SIGQUIT end the waiting; others are passed on when the command has started. What the command leaves\n" +
			"behind in its process group is killed before the lease is given back.\n\n" +
			"A lock in efficiency mode is taken from the Redis nodes directly, or through the service if they cannot be\n" +
			"reached from here.\n\n" + exitCodes,
		Example: "  leased run nightly -- ./backup.sh\n  leased run nightly --no-wait -- ./backup.sh\n  leased run workers --permits 3 -- ./worker",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 2 || c.ArgsLenAtDash() != 1 {
				return usageError(errors.New("run needs the name of a lock, then -- and a command, as `leased run nightly -- ./backup.sh`"))
			}
			return nil
		}}
	f.access, f.redis = addAccess(c), addRedisAccess(c)
	flags := c.Flags()
	flags.DurationVar(&f.ttl, "ttl", 0, "how long the lease lasts when it cannot be renewed, at least 1s (default: as the lock's policy says)")
	flags.DurationVar(&f.grace, "grace", 0, "time between SIGTERM and SIGKILL (default: a fifth of ttl)")
	flags.DurationVar(&f.wait, "wait", 0, "how long to wait for the lock (default: as long as it takes)")
	flags.BoolVar(&f.noWait, "no-wait", false, "do not wait for the lock")
	flags.BoolVar(&f.shared, "shared", false, "share the lock with others who ask for it shared; in correctness mode only")
	flags.IntVar(&f.permits, "permits", 0, "take one of so many permits; in correctness mode only")
	flags.StringVar(&f.mode, "mode", "", "the mode that the lock must have: efficiency or correctness")
	flags.StringVar(&f.holder, "holder", defaultHolder(), "who holds it, for people who inspect the lock")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "say nothing while waiting")
	flags.BoolVar(&f.noRedis, "no-redis", false, "take locks in efficiency mode through the service, too")
	c.RunE = func(c *cobra.Command, args []string) error {
		return f.run(c.Context(), fencing.Resource(args[0]), args[1:])
	}
	return c
}

func newRunGuard() *cobra.Command {
	return &cobra.Command{Use: guardCommand, Hidden: true, Args: cobra.NoArgs,
		Run: func(*cobra.Command, []string) { supervise.Guard(os.Stdin, os.Stdout) }}
}

func newRunHold() *cobra.Command {
	return &cobra.Command{Use: holdCommand, Hidden: true, DisableFlagParsing: true, // the flags are the command's
		Run: func(_ *cobra.Command, args []string) { os.Exit(supervise.Hold(args)) }}
}

// run acquires, runs the command, and gives the lease back.
func (f *runFlags) run(ctx context.Context, resource fencing.Resource, args []string) error {
	options, err := f.options(ctx, resource)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	inbox := openInbox()
	defer inbox.close()
	line := newWaitingLine(os.Stderr, resource, f.holder, f.quiet)
	before := inbox.waiting(ctx)
	client, err := f.connect(before, line)
	if err != nil {
		line.end()
		return err
	}
	line.ask(client.Inspect)
	l, err := f.acquire(before, client, resource, options)
	line.end()
	signals, ended := inbox.deliver()
	if err == nil && ended != nil {
		err = ended
	}
	if err != nil {
		farewell(client, l, farewellTime)
		return f.notAcquired(err, line.notQueued())
	}
	command := supervise.Command{Args: args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, TTL: f.ttl, Grace: f.grace,
		Guard: []string{self, guardCommand}, Hold: []string{self, holdCommand}, Signals: signals,
		Log: func(format string, args ...any) { fmt.Fprintf(os.Stderr, "leased: "+format+"\n", args...) }}
	result, err := command.Run(l)
	return f.finish(client, l, result, err)
}

// notAcquired is the exit code for a lock that was not had in time. That the
// last answer was not heard does not matter: the client has given up whatever
// it may have been granted. Who waited and was in no queue has not met others
// who hold the lock, but a service that could not be used: trouble says why.
func (f *runFlags) notAcquired(err, trouble error) error {
	if errors.Is(err, lease.ErrHeld) && trouble != nil && !f.noWait {
		return &codeError{exitUnavailable, fmt.Errorf("waited %v in vain for the service: %w; is it running? Name it with --endpoint or LEASED_ENDPOINT", f.wait, trouble)}
	}
	if errors.Is(err, lease.ErrHeld) {
		return &codeError{exitHeld, fmt.Errorf("%w; see who holds it with `leased inspect`", err)}
	}
	return err
}

// finish gives the lease back and turns the result into an exit code.
func (f *runFlags) finish(client *lease.Client, l *lease.Lease, result supervise.Result, err error) error {
	if result.Lost != nil {
		farewell(client, l, hurryTime)
		if errors.Is(result.Lost, supervise.ErrGuard) {
			return result.Lost
		}
		return &codeError{exitLost, fmt.Errorf("the lease on %q was lost, and the command was ended (it had exit code %d): %w",
			string(l.Resource()), result.Code, result.Lost)}
	}
	farewell(client, l, farewellTime)
	switch {
	case errors.Is(err, supervise.ErrNotFound):
		return &codeError{exitNotFound, err}
	case errors.Is(err, supervise.ErrNotExecutable):
		return &codeError{exitCannotRun, err}
	case err != nil:
		return err
	case result.Code != 0:
		return &codeError{code: result.Code}
	}
	return nil
}

// farewell releases the lease and closes the session, if the service can be
// told in that time. If not, both run out: a renewal that is under way and not
// answered must not keep the program from ending.
func farewell(client *lease.Client, l *lease.Lease, limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	told := make(chan struct{})
	go func() {
		defer close(told)
		if l != nil && l.Err() == nil {
			_ = l.Release(ctx)
		}
		_ = client.Close(ctx)
	}()
	select {
	case <-told:
	case <-ctx.Done():
	}
}

func (f *runFlags) acquire(ctx context.Context, client *lease.Client, resource fencing.Resource, options []lease.AcquireOption) (*lease.Lease, error) {
	if f.noWait {
		return client.TryAcquire(ctx, resource, options...)
	}
	return client.Acquire(ctx, resource, options...)
}

// options checks the flags, and fills in the timings.
func (f *runFlags) options(ctx context.Context, resource fencing.Resource) ([]lease.AcquireOption, error) {
	if err := resource.Validate(); err != nil {
		return nil, err
	}
	switch {
	case f.wait != 0 && f.noWait:
		return nil, usageError(fmt.Errorf("wait (%v) and no-wait exclude each other", f.wait))
	case f.shared && f.permits != 0:
		return nil, usageError(fmt.Errorf("shared and permits (%d) exclude each other", f.permits))
	}
	if _, err := f.redis.access(); err != nil {
		return nil, err
	}
	topology := f.access.topology(ctx)
	if f.ttl == 0 {
		f.ttl = topology.Policies.For(resource).TTL
	}
	// A lock in correctness mode needs no connection to Redis, nor a word about it.
	if mode, err := topology.ModeOf(resource); err == nil && mode != lease.Efficiency {
		f.noRedis = true
	}
	if f.grace == 0 {
		f.grace = supervise.DefaultGrace(f.ttl)
	}
	if err := supervise.Check(f.ttl, f.grace); err != nil {
		return nil, usageError(err)
	}
	options := []lease.AcquireOption{lease.WithTTL(f.ttl)}
	if f.wait != 0 {
		options = append(options, lease.WithWaitLimit(f.wait))
	}
	if f.shared {
		options = append(options, lease.WithShared())
	}
	if f.permits != 0 {
		options = append(options, lease.WithPermits(f.permits))
	}
	if f.mode != "" {
		mode, err := lease.ParseMode(f.mode)
		if err != nil {
			return nil, err
		}
		options = append(options, lease.WithMode(mode))
	}
	return options, nil
}

// topology is what the first member that answers says about modes and timings.
// Where none does it is empty.
func (a *access) topology(ctx context.Context) (topology engine.Topology) {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	_ = a.onAny(ctx, func(conn *grpc.ClientConn) error {
		stream, err := pb.NewPolicyServiceClient(conn).WatchTopology(ctx, &pb.WatchTopologyRequest{})
		if err != nil {
			return err
		}
		first, err := stream.Recv()
		if err == nil {
			topology, err = wire.ToTopology(first)
		}
		return err
	})
	return topology
}

// connect connects to the service. If no member can be reached it waits as long
// as it would for the lock.
func (f *runFlags) connect(ctx context.Context, line *waitingLine) (*lease.Client, error) {
	limited := ctx
	if f.wait != 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, f.wait)
		defer cancel()
	}
	trouble := errUnreached
	for {
		client, err := f.dial(limited, line)
		switch {
		case err == nil:
			return client, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case limited.Err() != nil:
			return nil, f.notAcquired(lease.ErrHeld, trouble)
		case f.noWait || !passing(err):
			return nil, err
		}
		trouble = err
		line.waiting(lease.Event{Err: err})
	}
}

// dial connects to the service, and to Redis where the lock is there.
func (f *runFlags) dial(ctx context.Context, line *waitingLine) (*lease.Client, error) {
	addresses, err := f.access.endpoints()
	if err != nil {
		return nil, err
	}
	config, err := f.access.tls()
	if err != nil {
		return nil, err
	}
	own, err := f.access.secret()
	if err != nil {
		return nil, err
	}
	redis, err := f.redis.access()
	if err != nil {
		return nil, err
	}
	level := slog.LevelWarn
	if f.quiet {
		level = slog.LevelError
	}
	options := []client.Option{
		client.WithLogger(slog.New(&plainHandler{out: os.Stderr, level: level})),
		client.WithRedis(redis.Options),
		client.WithLeaseOptions(lease.WithName(f.holder), lease.WithHooks(lease.Hooks{Waiting: line.waiting})),
	}
	if f.noRedis {
		options = append(options, client.WithoutRedis())
	}
	if redis.Insecure {
		options = append(options, client.WithRedisInsecure())
	}
	if config != nil {
		options = append(options, client.WithTLS(config))
	}
	if own != "" {
		options = append(options, client.WithSecret(own))
	}
	return client.Dial(ctx, addresses, options...)
}
