package main

import (
	"context"
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
