package testserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BuildLeased builds the leased binary into a folder and returns its path. It must be called inside the
// module, or inside one that replaces it by its folder. The flags are those of go build.
func BuildLeased(dir string, flags ...string) (string, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/leased-project/leased").Output()
	if err != nil {
		return "", fmt.Errorf("find the module of leased: %w", err)
	}
	program := filepath.Join(dir, "leased")
	args := append(append([]string{"build"}, flags...), "-o", program, "./cmd/leased")
	build := exec.Command("go", args...)
	build.Dir = strings.TrimSpace(string(root))
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build leased: %w; its output:\n%s", err, output)
	}
	return program, nil
}

// StartLeased starts a member of a service with further flags of `leased serve`, and waits until it is
// ready. Addr is the address of its API. Without a flag for it, Raft listens on a free port.
func StartLeased(program string, flags ...string) (*Server, error) {
	return start("leased", nil, func(s *Server) error {
		raft, err := FreeAddresses(1)
		if err != nil {
			return err
		}
		s.answers = serves("/readyz")
		s.Args = append([]string{program, "serve", "--data", filepath.Join(s.Dir, "data"), "--listen", s.Addr,
			"--raft-listen", raft[0]}, flags...)
		return nil
	})
}

// StartService starts a service of one member. It builds the binary, unless the variable TEST_BINARY
// names one. A slow disk does not stop the member: no other one could lead.
func StartService() (*Server, error) {
	program := os.Getenv("TEST_BINARY")
	if program == "" {
		dir, err := os.MkdirTemp("", "leased-binary-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir) // the running program does not need it
		if program, err = BuildLeased(dir); err != nil {
			return nil, err
		}
	}
	return StartLeased(program, "--bootstrap-expect=1", "--disk-timeout=2m")
}

// Patient gives the members that the tests start enough time on a busy machine: none is replaced because its
// processor or its disk is slow, and Redis nodes have time to answer. Tests of what happens otherwise set the flags of
// their members.
func Patient() {
	for name, value := range map[string]string{"LEASED_HEARTBEAT_TIMEOUT": "2s", "LEASED_DISK_TIMEOUT": "2m",
		"LEASED_REDIS_TIMEOUT": "3s"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
}
