// Package meter reads CPU times, memory and the description of the machine from Linux.
//
// The nouns, in reading order: [CPU], the CPU time of processes; [Times], the CPU times of the machine with its steal;
// [Resident], the memory of a process; [Machine], the description.
package meter

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// tick is the unit of CPU times in Linux.
const tick = 10 * time.Millisecond

// CPU returns the CPU time that the processes have used. A process that has ended counts nothing.
func CPU(pids ...int) time.Duration {
	var ticks int64
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
		for _, f := range fields[11:13] { // utime and stime
			n, _ := strconv.ParseInt(string(f), 10, 64)
			ticks += n
		}
	}
	return time.Duration(ticks) * tick
}

// Own returns the CPU time that this process has used.
func Own() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Times are the CPU times of the machine since it started.
type Times struct{ total, steal float64 }

// Now returns the present times. They are zero if they cannot be read.
func Now() (t Times) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return t
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	for i, f := range bytes.Fields(line) {
		n, _ := strconv.ParseFloat(string(f), 64)
		if i > 8 { // guest times are included in user
			break
		}
		t.total += n
		if i == 8 {
			t.steal = n
		}
	}
	return t
}

// Steal returns the share of the time since before that the hypervisor took, 0 to 1.
func (t Times) Steal(before Times) float64 {
	return (t.steal - before.steal) / max(1, t.total-before.total)
}

// Resident returns the resident memory of a process in bytes, or 0 if it has ended.
func Resident(pid int) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(data)
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseFloat(string(fields[1]), 64)
	return pages * float64(os.Getpagesize())
}
