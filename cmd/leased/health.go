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
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/httpapi"
	"github.com/leased-project/leased/internal/wire"
)

const (
	// healthTimeout bounds a check: supervisors repeat it.
	healthTimeout = 5 * time.Second
	// maxProbeAnswer bounds the answer that is read from a probe.
	maxProbeAnswer = 4 << 10
	// probeVariable is the setting of the member; the command uses it too.
	probeVariable = "LEASED_PROBE_LISTEN"
)

func setUpHealth(c *cobra.Command) {
	a, o := addAccess(c), addOutput(c)
	probe := c.Flags().String("probe", "", "address of the probe listener, HOST:PORT ("+probeVariable+")")
	ready := c.Flags().Bool("ready", false, "check whether the member can serve, not only whether it is alive")
	c.RunE = interruptible(func(c *cobra.Command, _ []string) error {
		address := *probe
		if !c.Flags().Changed("endpoint") {
			address = cmp.Or(address, os.Getenv(probeVariable))
		}
		check, addresses := a.checkHealth, []string{address}
		if address != "" {
			check = checkProbe
		} else if all, err := a.endpoints(); err != nil {
			return err
		} else {
			addresses = all
		}
		var failed error
		checks := make([]healthCheck, len(addresses))
		for i, address := range addresses {
			text, err := check(c.Context(), address, *ready)
			checks[i] = healthCheck{Address: address, OK: err == nil, Detail: text}
			if err != nil {
				checks[i].Detail = err.Error()
			}
			failed = errors.Join(failed, checkError(err))
		}
		return errors.Join(o.print(c, checks, func(t *tabwriter.Writer) {
			for _, h := range checks {
				if h.OK { // the error says the rest
					fmt.Fprintf(t, "%s: %s\n", h.Address, h.Detail)
				}
			}
		}), failed)
	})
}

// healthCheck is the JSON result of checking one member.
type healthCheck struct {
	Address string `json:"address"`
	OK      bool   `json:"ok"`
	Detail  string `json:"detail"`
}

// checkError returns the error of a check. All failed checks have the same exit code, unless the flags are
// wrong.
func checkError(err error) error {
	if err == nil {
		return nil
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
	health, err := newAPI(conn).Health(ctx, &pb.HealthRequest{})
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
	path := httpapi.LivePath
	if ready {
		path = httpapi.ReadyPath
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+path, nil)
	if err != nil {
		return "", usageError(fmt.Errorf("--probe (%s): %w", address, err))
	}
	// no proxy: the member is on this machine or network
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true},
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
	return &codeError{wire.ExitUnavailable, fmt.Errorf("no member answers at %s: %w; is it running, and is this its "+
		"probe-listen address?", address, err)}
}

// notReady returns the error of a member that cannot serve. It has no hint: the
// reason says what to do.
func notReady(address, reason string) error {
	return &codeError{wire.ExitUnavailable, fmt.Errorf("the member at %s is not ready: %s", address, reason)}
}
