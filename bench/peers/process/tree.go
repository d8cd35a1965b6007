package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

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
