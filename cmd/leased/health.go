package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/probes"
	"github.com/leased-project/leased/lease/remote/wire"
)

const (
	// healthTimeout bounds a check: supervisors repeat it.
	healthTimeout = 5 * time.Second
	// maxProbeAnswer bounds the answer that is read from a probe.
	maxProbeAnswer = 4 << 10
	// probeVariable is the setting of the member; the command uses it too.
	probeVariable = "LEASED_PROBE_LISTEN"
)

func newHealth() *cobra.Command {
	c := &cobra.Command{Use: "health", Short: "Check whether a member is alive, or ready",
		Long: "Check whether a member is alive, for supervisors and container images without a shell. With --ready, check whether\n" +
			"it can serve: it knows a leader, has caught up with the log and is not shutting down. The exit code is 0 or 122.\n\n" +
			"The check uses the probe listener of the member (leased serve --probe-listen) if --probe or " + probeVariable + "\n" +
			"names one, otherwise the API. If --endpoint names several members, all of them must pass.",
		Example: "  leased health --probe 127.0.0.1:7422 --ready\n  leased health --endpoint node1:7420,node2:7420,node3:7420 --ready",
		Args:    cobra.NoArgs}
	a := addAccess(c)
	probe := c.Flags().String("probe", "", "address of the probe listener, HOST:PORT ("+probeVariable+")")
	ready := c.Flags().Bool("ready", false, "check whether the member can serve, not only whether it is alive")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, cancel := untilInterrupted(c.Context())
		defer cancel()
		address := *probe
		if !c.Flags().Changed("endpoint") {
			address = cmp.Or(address, os.Getenv(probeVariable))
		}
		if address != "" {
			return report(ctx, c.OutOrStdout(), address, func() (string, error) { return checkProbe(ctx, address, *ready) })
		}
		addresses, err := a.endpoints()
		if err != nil {
			return err
		}
		var failed error
		for _, address := range addresses {
			failed = errors.Join(failed, report(ctx, c.OutOrStdout(), address, func() (string, error) { return a.checkHealth(ctx, address, *ready) }))
		}
		return failed
	}
	return c
}

// report prints the result of a check that passed. All failed checks have the same exit
// code, except for one that was interrupted or has wrong flags.
func report(ctx context.Context, w io.Writer, address string, check func() (string, error)) error {
	text, err := check()
	if err == nil {
		_, err = fmt.Fprintf(w, "%s: %s\n", address, text)
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if code, _ := explain(err); code != wire.ExitUsage && code != wire.ExitUnavailable {
		return &codeError{wire.ExitUnavailable, err}
	}
	return err
}

// checkHealth asks the API of one member.
func (a *access) checkHealth(ctx context.Context, address string, ready bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	conn, err := a.connect(ctx, address, connectTimeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	health, err := pb.NewClusterServiceClient(conn).Health(ctx, &pb.HealthRequest{})
	switch {
	case err != nil:
		return "", fmt.Errorf("check %s: %w", address, callError(err))
	case !ready:
		return "ok", nil
	case health.Status != "serving":
		return "", notReady(address, health.Reason)
	case health.Reason != "":
		return "ok: " + health.Reason, nil
	}
	return "ok", nil
}

// checkProbe asks a probe listener. A listener on all addresses is asked on the
// loopback address.
func checkProbe(ctx context.Context, address string, ready bool) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return "", usageError(fmt.Errorf("--probe (%s) must be HOST:PORT, such as 127.0.0.1:7422", address))
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	path := probes.LivePath
	if ready {
		path = probes.ReadyPath
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+path, nil)
	if err != nil {
		return "", usageError(fmt.Errorf("--probe (%s): %w", address, err))
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, // no proxy: the member is on this machine or network
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return "", noAnswer(address, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxProbeAnswer))
	text := strings.TrimSpace(string(body))
	switch {
	case err != nil:
		return "", noAnswer(address, err)
	case response.StatusCode == http.StatusServiceUnavailable:
		return "", notReady(address, strings.TrimPrefix(text, "not ready: "))
	case response.StatusCode != http.StatusOK:
		return "", noAnswer(address, fmt.Errorf("status %s", response.Status))
	}
	return text, nil
}

// noAnswer returns the error of a probe that a member does not answer.
func noAnswer(address string, err error) error {
	return &codeError{wire.ExitUnavailable, fmt.Errorf("no member answers at %s: %w; is it running, and is this its probe-listen address?", address, err)}
}

// notReady returns the error of a member that cannot serve. It has no hint: the
// reason says what to do.
func notReady(address, reason string) error {
	return &codeError{wire.ExitUnavailable, fmt.Errorf("the member at %s is not ready: %s", address, reason)}
}
