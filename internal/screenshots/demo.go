package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	memberCount = 3
	redisCount  = 5
	// demoTime lets the load make some history before the first picture.
	demoTime = 45 * time.Second
	// startTimeout bounds the time until the members serve.
	startTimeout = time.Minute
)

// demo is a cluster of real processes under the demo load.
type demo struct {
	url     string
	folder  string
	running []*exec.Cmd
}

// startDemo builds leased, starts the processes, and returns when there is some history.
func startDemo(ctx context.Context) (*demo, error) {
	folder, err := os.MkdirTemp("", "leased-demo-")
	if err != nil {
		return nil, err
	}
	d := &demo{folder: folder}
	if err := d.start(ctx); err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

func (d *demo) start(ctx context.Context) error {
	leased := filepath.Join(d.folder, "leased")
	build := exec.CommandContext(ctx, "go", "build", "-o", leased, "./cmd/leased")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build leased: %w", err)
	}
	addresses, err := freeAddresses(2*memberCount + redisCount)
	if err != nil {
		return err
	}
	api, raft, redis := addresses[:memberCount], addresses[memberCount:2*memberCount], addresses[2*memberCount:]
	for _, address := range redis {
		_, port, _ := net.SplitHostPort(address)
		if err := d.run("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", d.folder); err != nil {
			return fmt.Errorf("%w; install Redis (Debian: apt-get install redis-server)", err)
		}
	}
	for i := range api {
		id := fmt.Sprint("n", i+1)
		args := []string{"serve", "--id", id, "--data", filepath.Join(d.folder, id), "--listen", api[i], "--raft-listen", raft[i],
			"--redis", strings.Join(redis, ","), "--redis-max-ttl", "30s", "--log-level", "error"}
		if i == 0 {
			args = append(args, "--bootstrap-expect", "1")
		} else {
			args = append(args, "--join", api[0])
		}
		if err := d.run(leased, args...); err != nil {
			return err
		}
		if err := ready(ctx, api[i]); err != nil {
			return err
		}
	}
	d.url = "http://" + api[0]
	if err := d.run(leased, "demo", "load", "--endpoint", strings.Join(api, ","), "--workers", "40", "--prefix", ""); err != nil {
		return err
	}
	fmt.Printf("the demo runs at %s; the first picture is taken in %v\n", d.url, demoTime)
	return sleep(ctx, demoTime)
}

// run starts a process that stop ends.
func (d *demo) run(name string, args ...string) error {
	command := exec.Command(name, args...)
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		return err
	}
	d.running = append(d.running, command)
	return nil
}

// stop ends the processes and removes their data.
func (d *demo) stop() {
	for _, command := range d.running {
		_ = command.Process.Kill()
		_ = command.Wait() // it was killed
	}
	_ = os.RemoveAll(d.folder)
}

// ready waits until a member serves.
func ready(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("member at %s is not ready after %v: %w", address, startTimeout, err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// freeAddresses returns loopback addresses that nobody listens on.
func freeAddresses(n int) ([]string, error) {
	var list []string
	var failed error
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { failed = errors.Join(failed, listener.Close()) }()
		list = append(list, listener.Addr().String())
	}
	return list, failed
}
