package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

const (
	memberCount = 3
	// readyTime limits the start of the service.
	readyTime = time.Minute
	module    = "github.com/leased-project/leased"
	// Prefixes of the locks in each mode.
	efficiencyPrefix, correctnessPrefix = "e/", "c/"
	policies                            = `policies:
  - prefix: "e/"
    mode: efficiency
  - prefix: "c/"
    mode: correctness
`
)

// service is three members on this machine, as processes of the real program.
type service struct {
	dir       string
	members   []*exec.Cmd
	endpoints []string
}

// startService starts the members and waits until both modes grant locks. If program
// is empty, it is built from this repository.
func startService(program string, redises []string) (*service, error) {
	dir, err := os.MkdirTemp("", "leased-bench-")
	if err != nil {
		return nil, err
	}
	s := &service{dir: dir}
	if err = s.start(program, redises); err == nil {
		err = s.ready()
	}
	if err != nil {
		err = fmt.Errorf("start the service: %w\n%s", err, s.logs())
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *service) start(program string, redises []string) error {
	if program == "" {
		program = filepath.Join(s.dir, "leased")
		if out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output(); err != nil {
			return fmt.Errorf("find the source of %s: %w", module, err)
		} else if text, err := exec.Command("go", "build", "-C", string(bytes.TrimSpace(out)), "-o", program, "./cmd/leased").CombinedOutput(); err != nil {
			return fmt.Errorf("build the members: %w\n%s", err, text)
		}
	}
	file := filepath.Join(s.dir, "settings.yaml")
	if err := os.WriteFile(file, []byte(policies), 0o600); err != nil {
		return err
	}
	var rafts []string
	for range memberCount {
		addresses, err := freeAddresses(2)
		if err != nil {
			return err
		}
		s.endpoints, rafts = append(s.endpoints, addresses[0]), append(rafts, addresses[1])
	}
	for i := range memberCount {
		id := string(rune('a' + i))
		log, err := os.Create(filepath.Join(s.dir, id+".log"))
		if err != nil {
			return err
		}
		member := exec.Command(program, "serve", "--config="+file, "--id="+id, "--data="+filepath.Join(s.dir, id), "--listen="+s.endpoints[i],
			"--raft-listen="+rafts[i], fmt.Sprintf("--bootstrap-expect=%d", memberCount), "--join="+strings.Join(s.endpoints, ","),
			"--redis="+strings.Join(redises, ","))
		member.Stdout, member.Stderr = log, log
		member.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		err = member.Start()
		_ = log.Close()
		if err != nil {
			return err
		}
		s.members = append(s.members, member)
	}
	return nil
}

// ready waits until locks of both modes are granted.
func (s *service) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTime)
	defer cancel()
	d, err := s.dial(ctx, "")
	if err != nil {
		return err
	}
	defer d.close()
	for _, prefix := range []string{efficiencyPrefix, correctnessPrefix} {
		for {
			err := d.pair(ctx, prefix+"ready", nil)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return errors.Join(err, ctx.Err())
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	return nil
}

// dial returns a driver that sends all requests to the members.
func (s *service) dial(ctx context.Context, prefix string) (driver, error) {
	c, err := client.Dial(ctx, s.endpoints, client.WithoutRedis())
	if err != nil {
		return nil, err
	}
	return &serviceDriver{client: c, prefix: prefix}, nil
}

// pids returns the process ids of the members.
func (s *service) pids() (pids []int) {
	if s != nil {
		for _, member := range s.members {
			pids = append(pids, member.Process.Pid)
		}
	}
	return pids
}

func (s *service) logs() string {
	var text strings.Builder
	files, _ := filepath.Glob(filepath.Join(s.dir, "*.log"))
	for _, file := range files {
		data, _ := os.ReadFile(file)
		text.Write(data[max(0, len(data)-2000):])
	}
	return text.String()
}

func (s *service) stop() {
	for _, member := range s.members {
		_ = member.Process.Kill()
		_ = member.Wait()
	}
	_ = os.RemoveAll(s.dir)
}

// freeAddresses returns loopback addresses that are currently free.
func freeAddresses(n int) (addresses []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// serviceDriver is a lease.Client of the service with its default settings.
type serviceDriver struct {
	client *lease.Client
	prefix string
}

func (d *serviceDriver) pair(ctx context.Context, name string, inside func(uint64)) error {
	return pairOf(ctx, d.client, fencing.Resource(d.prefix+name), inside)
}

func (d *serviceDriver) close() { _ = d.client.Close(context.Background()) }
