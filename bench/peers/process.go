package peers

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/leased-project/leased/internal/testserver"
)

// Servers are the servers of one service.
type Servers []*testserver.Process

// Pids returns the process ids of the servers that run.
func (s Servers) Pids() (pids []int) {
	for _, p := range s {
		if pid := p.Pid(); pid != 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Restart starts the servers that do not run.
func (s Servers) Restart() error {
	for _, p := range s {
		if p.Pid() != 0 {
			continue
		}
		if err := p.Start(); err != nil {
			return err
		}
	}
	return nil
}

// Kill ends the servers.
func (s Servers) Kill() {
	for _, p := range s {
		p.Kill()
	}
}

// Explain appends the tail of the servers' output to an error.
func (s Servers) Explain(err error) error {
	for _, p := range s {
		err = errors.Join(err, fmt.Errorf("output of %s:\n%s", p.Name, p.LogEnd()))
	}
	return err
}

// Tree returns the ids of a process and of its children. PostgreSQL, for example, has a
// process for each connection.
func Tree(pid int) []int {
	pids := []int{pid}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil { // it has exited
			continue
		}
		fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:]) // state, parent, ...
		if parent, _ := strconv.Atoi(string(fields[1])); parent == pid {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, child)
		}
	}
	return pids
}
