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

// exactly wants n arguments, and says what they are.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError(fmt.Errorf("%s needs %s; see `%s --help`", c.CommandPath(), what, c.CommandPath()))
		}
		return nil
	}
}

// prefixOf is the optional argument, without a * at its end.
func prefixOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	prefix, _ := trimStar(args[0])
	return prefix
}

// prefixToChange is the prefix whose policy a command changes. All locks must be
// meant: an empty prefix, as of a variable that is not set, is refused.
func prefixToChange(arg string) (string, error) {
	prefix, star := trimStar(arg)
	switch {
	case prefix == "" && !star:
		return "", usageError(errors.New("PREFIX is empty, which would concern all locks; say '*' for all"))
	case strings.Contains(prefix, "*"):
		return "", usageError(fmt.Errorf("PREFIX (%s) must have no * but at its end: a policy is for names that begin with PREFIX", arg))
	}
	return prefix, nil
}

// trimStar takes a * off the end of a name, and says whether there was one.
func trimStar(name string) (string, bool) { return strings.CutSuffix(name, "*") }

// interrupted ends a program with the code that a shell expects.
func interrupted(s os.Signal) error {
	number, _ := s.(syscall.Signal)
	return &codeError{code: exitSignal + int(number)}
}

// untilInterrupted is a context that ends with SIGINT or SIGTERM.
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
