package meter

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/leased-project/leased/bench/results"
)

// syncs is the number of writes that measure the disk.
const syncs = 200

// Machine describes this machine. Folder is where the servers have their data.
func Machine(folder string) (m results.Machine) {
	m = results.Machine{Cores: runtime.NumCPU(), Disk: disk(folder), Go: runtime.Version()}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return m
	}
	if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
		m.CPU = cpus[0].ModelName
	}
	if memory, err := fs.Meminfo(); err == nil {
		m.Memory = int64(*memory.MemTotalBytes)
	}
	kernel, _ := fs.SysctlStrings("kernel.osrelease")
	m.Kernel = runtime.GOOS + " " + strings.Join(kernel, " ")
	return m
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
	mounts, _ := procfs.GetMounts()
	longest := -1
	for _, m := range mounts {
		inside := folder == m.MountPoint || strings.HasPrefix(folder, strings.TrimSuffix(m.MountPoint, "/")+"/")
		if inside && len(m.MountPoint) >= longest {
			device, kind, longest = m.Source, m.FSType, len(m.MountPoint)
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
