// Package meter reads the CPU time and the memory of processes, and the steal time of
// the machine, from /proc.
//
// The nouns, in reading order: [Meter], which measures an interval; [Usage], what it
// measured.
package meter

import (
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Usage is what an interval has used.
type Usage struct {
	Client, Servers time.Duration // CPU time of this process, and of the servers
	Steal           float64       // part of the machine's time that the hypervisor took, 0 to 1
}

// Meter measures an interval. Its methods must not be called concurrently.
type Meter struct {
	servers func() []int
	pids    []int // of the servers at Begin
	begin   reading
	usage   Usage
}

// reading is the values at one time.
type reading struct {
	client, servers time.Duration
	total, steal    float64 // of the machine, in seconds
}

// New returns a meter for this process and its servers. Servers returns their process
// ids; Begin calls it, since a server may have a process for each connection.
func New(servers func() []int) *Meter { return &Meter{servers: servers} }

// Begin starts the interval.
func (m *Meter) Begin() {
	m.pids = m.servers()
	m.begin = read(m.pids)
}

// End ends the interval.
func (m *Meter) End() {
	end := read(m.pids)
	m.usage = Usage{Client: end.client - m.begin.client, Servers: end.servers - m.begin.servers}
	if total := end.total - m.begin.total; total > 0 {
		m.usage.Steal = (end.steal - m.begin.steal) / total
	}
}

// Usage returns the values of the interval.
func (m *Meter) Usage() Usage { return m.usage }

func read(pids []int) reading {
	r := reading{client: Own()}
	for _, pid := range pids {
		r.servers += CPU(pid)
	}
	r.total, r.steal = machine()
	return r
}

// CPU returns the CPU time that a process has used, or 0 if it does not run. The times in
// /proc are too coarse: a server may have hundreds of processes that use less than a tick.
func CPU(pid int) time.Duration {
	const schedClock = 2 // of the process, in nanoseconds; see clock_getcpuclockid(3)
	if pid <= 0 {        // 0 would be this process
		return 0
	}
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &used); err != nil {
		return 0
	}
	return time.Duration(used.Nano())
}

// Own returns the CPU time that this process has used.
func Own() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Memory returns the bytes of memory that a process has to itself: resident pages without
// those of files, which the kernel can drop.
func Memory(pid int) int64 {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	status, _ := process.NewStatus()
	return int64(status.RssAnon + status.RssShmem)
}

// machine returns the CPU times of the machine, and the stolen part.
func machine() (total, steal float64) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, 0
	}
	stat, _ := fs.Stat()
	t := stat.CPUTotal // guest times are included in user
	return t.User + t.Nice + t.System + t.Idle + t.Iowait + t.IRQ + t.SoftIRQ + t.Steal, t.Steal
}
