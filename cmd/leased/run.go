//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/cmd/leased/internal/demo"
	"github.com/leased-project/leased/cmd/leased/internal/supervise"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease"
)

const (
	// guardCommand is the hidden command that a guard process runs.
	guardCommand = "run-guard"
	// holdCommand is the hidden command that becomes the user's command.
	holdCommand = "run-hold"
	// holderCommand is the hidden command of the two processes of `leased demo pause`.
	holderCommand = "demo-holder"
	// releaseTimeout bounds the release of the lease at the end.
	releaseTimeout = 5 * time.Second
	// closeTimeout bounds it when there is no lease to release.
	closeTimeout = time.Second
)

// runFlags are the flags of run.
type runFlags struct {
	access     *access
	ttl, grace time.Duration
	wait       time.Duration
	until      time.Time // the end of the wait, if wait limits it
	atLeast    time.Duration
	noWait     bool
	shared     bool
	permits    int
	mode       string
	known      bool // the policy of the lock was read
	holder     string
	quiet      bool
	signed     bool
	noRedis    bool
	line       *waitingLine
}

func setUpRun(c *cobra.Command) {
	f := &runFlags{}
	c.Long += "\n\n" + exitCodes
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) < 2 || c.ArgsLenAtDash() != 1 {
			return usageError(errors.New("run needs the name of a lock, then -- and a command, for example: leased run " +
				"nightly -- ./backup.sh"))
		}
		return nil
	}
	f.addClient(c)
	f.addKind(c)
	flags := c.Flags()
	flags.DurationVar(&f.grace, "grace", 0, "time between SIGTERM and SIGKILL (default: a fifth of the TTL)")
	flags.DurationVar(&f.atLeast, "at-least", 0, "hold the lock at least this long, so that a host whose clock is "+
		"late skips the command")
	flags.BoolVar(&f.signed, "signed", false, "put the signed token into LEASED_SIGNED_TOKEN, for gates that verify "+
		"signatures")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := positive(flags, "ttl", "grace", "wait", "at-least"); err != nil {
			return err
		}
		return f.run(c.Context(), fencing.Resource(args[0]), args[1:])
	}
}

// addClient adds the flags of all commands that renew a lease while they run.
func (f *runFlags) addClient(c *cobra.Command) {
	f.access = addRedisAccess(c)
	flags := c.Flags()
	flags.DurationVar(&f.ttl, "ttl", 0, "TTL of the lease, at least 1s (default: from the lock's policy)")
	flags.StringVar(&f.mode, "mode", "", "fail unless the lock has this mode: efficiency or correctness")
	flags.StringVar(&f.holder, "holder", defaultHolder(), "name of the holder that 'leased inspect' shows")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing while waiting")
	flags.BoolVar(&f.noRedis, "no-redis", false, "do not connect to Redis; acquire locks in efficiency mode through "+
		"the service")
}

// addKind adds the flags for how long to wait, and for what kind of lease.
func (f *runFlags) addKind(c *cobra.Command) {
	flags := c.Flags()
	flags.DurationVar(&f.wait, "wait", 0, "how long to wait for the lock (default: no limit)")
	flags.BoolVar(&f.noWait, "no-wait", false, "fail at once if others hold the lock")
	flags.BoolVar(&f.shared, "shared", false, "share the lock with other shared holders (correctness mode only)")
	flags.IntVar(&f.permits, "permits", 0, "size of the semaphore; acquires one permit of it (correctness mode only)")
}

// hiddenCommands returns the processes that `leased run` and `leased demo pause` start.
func hiddenCommands() []*cobra.Command {
	return []*cobra.Command{
		{Use: guardCommand, Hidden: true, Args: cobra.NoArgs,
			Run: func(*cobra.Command, []string) { supervise.Guard(os.Stdin, os.Stdout) }},
		{Use: holdCommand, Hidden: true, DisableFlagParsing: true, // the flags are the command's
			Run: func(_ *cobra.Command, args []string) { os.Exit(supervise.Hold(args)) }},
		{Use: holderCommand, Hidden: true, DisableFlagParsing: true, // an amount may be negative
			RunE: func(c *cobra.Command, args []string) error { return demo.Hold(c.Context(), args, os.Stdin, os.Stdout) }},
	}
}

// run acquires the lock, runs the command and releases the lock.
func (f *runFlags) run(ctx context.Context, resource fencing.Resource, args []string) error {
	options, err := f.options(ctx, resource)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 64)
	notify(signals, forwardedSignals()...)
	defer signal.Stop(signals)
	before, stop := untilInterrupted(ctx, endSignals...)
	defer stop()
	client, err := f.connect(before, resource)
	if err != nil {
		f.line.end()
		return err
	}
	l, err := f.acquire(before, client, resource, f.withTimings(options))
	f.line.end()
	if err == nil && before.Err() != nil {
		err = context.Cause(before)
	}
	stop() // from now on the command gets all signals
	var self string
	if err == nil {
		self, err = executable()
	}
	var env []string
	if err == nil && f.signed {
		var text string
		text, err = l.SignedToken(ctx)
		env = []string{fencing.EnvSignedToken + "=" + text}
	}
	if err != nil {
		trouble, timeout := f.line.notQueued(), releaseTimeout
		if l == nil && trouble != nil { // the service does not answer
			timeout = closeTimeout
		}
		release(client, l, timeout)
		return f.notAcquired(resource, err, trouble)
	}
	command := supervise.Command{Args: args, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		TTL: f.ttl, Grace: f.grace, Signals: signals,
		Guard: []string{self, guardCommand}, Hold: []string{self, holdCommand},
		Log: func(format string, args ...any) { fmt.Fprintf(os.Stderr, "leased: "+format+"\n", args...) }}
	signal.Notify(signals, lateSignals...)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a message that nobody can read must not end this process
	began := time.Now()
	result, err := command.Run(l)
	const signaled = 128 // an exit code from here on: somebody stopped the command
	if err == nil && result.Lost == nil && result.Code < signaled {
		f.keep(l, f.atLeast-time.Since(began), signals)
	}
	return f.finish(client, l, result, err)
}

// executable returns the path of this program. If its file was replaced or removed since the start, as by an upgrade
// during a long wait, it returns /proc/self/exe, which still refers to the running program.
func executable() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the path of leased: %w", err)
	}
	const running = "/proc/self/exe"
	there, _ := os.Stat(path)
	if this, err := os.Stat(running); err == nil && !os.SameFile(there, this) {
		return running, nil
	}
	return path, nil
}

// acquire acquires the lock, or tries once with --no-wait.
func (f *runFlags) acquire(ctx context.Context, client *lease.Client, resource fencing.Resource,
	options []lease.AcquireOption) (*lease.Lease, error) {
	if f.noWait {
		return client.TryAcquire(ctx, resource, options...)
	}
	return client.Acquire(ctx, resource, options...)
}

// keep holds the lease after the command, until a signal ends the program.
func (f *runFlags) keep(l *lease.Lease, rest time.Duration, signals <-chan os.Signal) {
	if rest <= 0 {
		return
	}
	if !f.quiet {
		fmt.Fprintf(os.Stderr, "leased: the command has ended; holding %s for another %v\n", l.Resource(),
			rest.Round(time.Second))
	}
	timer := time.NewTimer(rest)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-l.Done():
			return
		case s := <-signals:
			if slices.Contains(endSignals, s) {
				return
			}
		}
	}
}

// notAcquired returns the error for a lock that was not acquired in time. If the
// attempt never got into the lock's queue, the service was unavailable, and trouble is
// the reason.
func (f *runFlags) notAcquired(resource fencing.Resource, err, trouble error) error {
	late := f.wait != 0 && !time.Now().Before(f.until) && temporary(err)
	switch {
	case late && trouble != nil && f.access.postgres() != "":
		if errors.Is(trouble, wire.ErrUnreachable) {
			trouble = errors.New("it does not answer; check that it runs and that --postgres is right")
		}
		return &codeError{wire.ExitUnavailable, fmt.Errorf("acquire %q: the database was not available for %v: %w",
			string(resource), f.wait, trouble)}
	case late && trouble != nil:
		limit := connectTimeout
		if errors.Is(trouble, wire.ErrUnreachable) { // or slow to answer
			limit = 2 * firstConnect
		}
		if text := f.access.missingMajority(limit); text != "" {
			return &codeError{wire.ExitUnavailable, fmt.Errorf("acquire %q: the service was not available for %v: %s",
				string(resource), f.wait, text)}
		}
		return &codeError{wire.ExitUnavailable, fmt.Errorf("acquire %q: the service was not available for %v: %w; "+
			"check that it runs, and give its address with --endpoint or LEASED_ENDPOINT, and --tls-ca if it uses TLS",
			string(resource), f.wait, trouble)}
	case errors.Is(err, lease.ErrHeld):
		return &codeError{wire.ExitHeld, fmt.Errorf("%w; `leased inspect %s` shows the holder", err, resource)}
	case temporary(err):
		if text := f.access.missingMajority(connectTimeout); text != "" {
			return fmt.Errorf("%w; %s", err, text)
		}
	}
	return err
}

// finish releases the lease and turns the result into an exit code.
func (f *runFlags) finish(client *lease.Client, l *lease.Lease, result supervise.Result, err error) error {
	if result.Lost != nil {
		release(client, l, closeTimeout)
		if errors.Is(result.Lost, supervise.ErrGuard) {
			return result.Lost
		}
		return &codeError{wire.ExitLost, fmt.Errorf("the lease on %q was lost and the command was stopped (exit code %d): %w",
			string(l.Resource()), result.Code, result.Lost)}
	}
	release(client, l, releaseTimeout)
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

// options checks the flags. The TTL is added when the policy of the lock is known.
func (f *runFlags) options(ctx context.Context, resource fencing.Resource) ([]lease.AcquireOption, error) {
	if err := resource.Validate(); err != nil {
		return nil, err
	}
	switch {
	case f.wait != 0 && f.noWait:
		return nil, usageError(fmt.Errorf("--wait (%v) and --no-wait cannot be combined", f.wait))
	case f.shared && f.permits != 0:
		return nil, usageError(fmt.Errorf("--shared and --permits (%d) cannot be combined", f.permits))
	}
	if _, err := f.access.redisNodes(); err != nil {
		return nil, err
	}
	f.until = time.Now().Add(f.wait)
	if f.ttl != 0 {
		if err := f.setTimings(f.ttl); err != nil {
			return nil, err
		}
	}
	err := f.readPolicy(ctx, resource)
	if errors.Is(err, errCertificate) || errors.Is(err, errAuthority) || f.known && err != nil ||
		f.noWait && errors.Is(err, wire.ErrUnreachable) {
		return nil, err // waiting does not help, or nobody waits
	}
	var options []lease.AcquireOption
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
