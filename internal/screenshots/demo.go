package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease/engine"
)

const (
	memberCount = 3
	redisCount  = 5
	// demoTime lets the load make some history before the first picture.
	demoTime = 45 * time.Second
)

// demo is a cluster of real processes under the demo load.
type demo struct {
	url   string
	stops []func() // in the order in which the processes were started
}

// start builds leased, starts the processes, and returns when there is some history.
func (d *demo) start(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "leased-demo-")
	if err != nil {
		return err
	}
	d.stops = append(d.stops, func() { _ = os.RemoveAll(folder) })
	leased, err := testserver.BuildLeased(folder)
	if err != nil {
		return err
	}
	var redis, members []string
	for range redisCount {
		node, err := testserver.StartRedis()
		if err != nil {
			return err
		}
		d.stops, redis = append(d.stops, node.Close), append(redis, node.Addr)
	}
	formation := []string{"--bootstrap-expect", "1"}
	for i := range memberCount {
		m, err := testserver.StartLeased(leased, append(formation, "--id", fmt.Sprint("n", i+1), "--log-level", "error",
			"--redis", strings.Join(redis, ","), "--redis-max-ttl", "30s")...)
		if err != nil {
			return err
		}
		d.stops, members = append(d.stops, m.Stop), append(members, m.Addr)
		formation = []string{"--join", members[0]}
	}
	d.url = "http://" + members[0]
	load := exec.Command(leased, "demo", "load", "--endpoint", strings.Join(members, ","), "--workers", "40", "--prefix",
		"")
	load.Stderr = os.Stderr
	if err := load.Start(); err != nil {
		return err
	}
	d.stops = append(d.stops, func() {
		_ = load.Process.Kill()
		_ = load.Wait() // it was killed
	})
	fmt.Printf("the demo runs at %s; the first picture is taken in %v\n", d.url, demoTime)
	return engine.Sleep(ctx, demoTime)
}

// stop ends the processes and removes their data.
func (d *demo) stop() {
	for _, stop := range slices.Backward(d.stops) {
		stop()
	}
}
