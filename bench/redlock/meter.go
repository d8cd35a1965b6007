package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// cpuTime returns the CPU time that the processes have used.
func cpuTime(pids []int) time.Duration {
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
	return time.Duration(ticks) * 10 * time.Millisecond
}

// ownTime returns the CPU time that this process has used.
func ownTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// machineTimes are the CPU times of the machine, from the first line of /proc/stat.
type machineTimes struct{ total, idle, steal float64 }

func readTimes() (t machineTimes) {
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
		switch i {
		case 4, 5: // idle and iowait
			t.idle += n
		case 8:
			t.steal += n
		}
	}
	return t
}

// since describes the times since an earlier reading.
func (t machineTimes) since(before machineTimes) string {
	total := max(1, t.total-before.total)
	return fmt.Sprintf("steal %.1f %% of the machine's time, idle %.1f %%", 100*(t.steal-before.steal)/total, 100*(t.idle-before.idle)/total)
}
