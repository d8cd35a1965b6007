package meter

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leased-project/leased/bench/results"
)

// syncs is the number of writes that measure the disk.
const syncs = 200

// Machine describes this machine. Folder is where the servers have their data.
func Machine(folder string) results.Machine {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return results.Machine{
		CPU:    field("/proc/cpuinfo", "model name"),
		Cores:  runtime.NumCPU(),
		Memory: memory(),
		Disk:   disk(folder),
		Kernel: runtime.GOOS + " " + string(bytes.TrimSpace(kernel)),
		Go:     runtime.Version(),
	}
}

// field returns the value of the first line "name : value" of a file.
func field(file, name string) string {
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// memory returns the size of the memory in bytes.
func memory() int64 {
	kib, _, _ := strings.Cut(field("/proc/meminfo", "MemTotal"), " ")
	n, _ := strconv.ParseInt(kib, 10, 64)
	return n << 10
}

// disk describes the device and the file system of a folder, and how long a small write with fsync takes there.
func disk(folder string) string {
	device, kind := mount(folder)
	text := device + ", " + kind
	if median, err := syncTime(folder); err == nil {
		text += fmt.Sprintf(", 4 KiB with fsync in %.2f ms", float64(median)/float64(time.Millisecond))
	}
	return text
}

// mount returns the device and the type of the file system of a folder.
func mount(folder string) (device, kind string) {
	folder, _ = filepath.Abs(folder)
	data, _ := os.ReadFile("/proc/self/mounts")
	longest := -1
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 3 || len(f[1]) < longest {
			continue
		}
		if rest, ok := strings.CutPrefix(folder, f[1]); ok && (f[1] == "/" || rest == "" || rest[0] == '/') {
			device, kind, longest = f[0], f[2], len(f[1])
		}
	}
	return filepath.Base(device), kind
}

// syncTime returns the median time of a write of 4 KiB with fsync.
func syncTime(folder string) (time.Duration, error) {
	file, err := os.CreateTemp(folder, "sync-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	block := make([]byte, 4<<10)
	var times []time.Duration
	for range syncs {
		start := time.Now()
		if _, err := file.Write(block); err != nil {
			return 0, err
		}
		if err := file.Sync(); err != nil {
			return 0, err
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	return times[syncs/2], nil
}

// Commit returns the commit of the source, with "+" if it has local changes; nothing if it is
// unknown.
func Commit() string {
	head, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return ""
	}
	text := strings.TrimSpace(string(head))
	if exec.Command("git", "diff", "--quiet", "HEAD").Run() != nil {
		text += "+"
	}
	return text
}
