package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// exactly requires n arguments; what describes them in the error.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError(fmt.Errorf("%s needs %s; see `%s --help`", c.CommandPath(), what, c.CommandPath()))
		}
		return nil
	}
}

// prefixOf returns the optional argument without a trailing *.
func prefixOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return strings.TrimSuffix(args[0], "*")
}

// prefixToChange returns the prefix whose policy a command changes. It rejects an
// empty prefix, which may come from an unset variable: '*' means all locks.
func prefixToChange(arg string) (string, error) {
	prefix, star := strings.CutSuffix(arg, "*")
	switch {
	case prefix == "" && !star:
		return "", usageError(errors.New("PREFIX is empty; to change the policy of all locks, give '*'"))
	case strings.Contains(prefix, "*"):
		return "", usageError(fmt.Errorf("PREFIX (%s) may contain * only at its end: a policy applies to all names that start with PREFIX", arg))
	}
	return prefix, nil
}

// interrupted returns the error that ends the program with the exit code that a
// shell expects after a signal.
func interrupted(s os.Signal) error {
	number, _ := s.(syscall.Signal)
	return &codeError{code: exitSignal + int(number)}
}

// untilInterrupted returns a context that SIGINT and SIGTERM cancel.
func untilInterrupted(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
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
