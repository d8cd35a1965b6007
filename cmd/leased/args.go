package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// exactly requires n arguments; what describes them in the error.
func exactly(n int, what string) cobra.PositionalArgs { return between(n, n, what) }

// atLeast requires n arguments or more; what describes them in the error.
func atLeast(n int, what string) cobra.PositionalArgs { return between(n, math.MaxInt, what) }

// between requires a number of arguments; what describes them in the error.
func between(least, most int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			return nil
		}
		path, problem := c.CommandPath(), "needs "+what
		if len(args) > most {
			problem = fmt.Sprintf("takes only %s, not also %q", what, args[most])
		}
		return usageError(fmt.Errorf("%s %s; see `%s --help`", strings.TrimPrefix(path, "leased "), problem, path))
	}
}

// flagError names the flag and the command's help. It replaces the text of strconv for a
// value that is not a number.
func flagError(c *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	if errors.As(err, &invalid) && errors.As(err, &number) && number.Func != "ParseBool" {
		err = fmt.Errorf("--%s (%s) must be a whole number in its range", invalid.GetFlag().Name, invalid.GetValue())
	}
	return usageError(fmt.Errorf("%w; see `%s --help`", err, c.CommandPath()))
}

// positive returns an error for a duration flag that was given and is not above 0. A
// caller who wants the default leaves the flag out.
func positive(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		d, err := flags.GetDuration(name)
		if err == nil && flags.Changed(name) && d <= 0 {
			return usageError(fmt.Errorf("--%s (%v) must be above 0; leave it out for the default", name, d))
		}
	}
	return nil
}

// exactlyOne reports whether exactly one of several flags was given.
func exactlyOne(values ...string) bool {
	return len(slices.DeleteFunc(values, func(value string) bool { return value == "" })) == 1
}

// prefixOf returns the optional argument without a trailing *.
func prefixOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return strings.TrimSuffix(args[0], "*")
}

// prefixToChange returns the prefix whose policy a command changes. It refuses an
// empty prefix, which may come from an unset variable: '*' means all locks.
func prefixToChange(arg string) (string, error) {
	prefix, star := strings.CutSuffix(arg, "*")
	switch {
	case prefix == "" && !star:
		return "", usageError(errors.New("PREFIX is empty; to change the policy of all locks, give '*'"))
	case strings.Contains(prefix, "*"):
		return "", usageError(fmt.Errorf("PREFIX (%s) may contain * only at its end: a policy applies to all names "+
			"that start with PREFIX", arg))
	}
	return prefix, nil
}

// interrupted returns the error that ends the program with the exit code that a
// shell expects after a signal.
func interrupted(s os.Signal) error {
	number, _ := s.(syscall.Signal)
	return &codeError{code: exitSignal + int(number)}
}

// interruptible returns a RunE whose context ends after SIGINT, SIGTERM, SIGHUP or SIGQUIT, so that it can clean up:
// locks, the terminal, temporary files. If run then fails, the program ends as a shell expects after a signal.
func interruptible(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		ctx, stop := untilInterrupted(c.Context(), syscall.SIGHUP, syscall.SIGQUIT)
		defer stop()
		c.SetContext(ctx)
		err := run(c, args)
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
}

// notify is signal.Notify, except that SIGHUP stays ignored under nohup, also in the processes that this one starts.
func notify(c chan<- os.Signal, signals ...os.Signal) {
	signal.Notify(c, slices.DeleteFunc(signals, func(s os.Signal) bool {
		return s == syscall.SIGHUP && signal.Ignored(s)
	})...)
}

// untilInterrupted returns a context that SIGINT, SIGTERM and other signals cancel.
func untilInterrupted(parent context.Context, others ...os.Signal) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	notify(signals, append(others, os.Interrupt, syscall.SIGTERM)...)
	go func() {
		select {
		case s := <-signals:
			cancel(interrupted(s))
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}
