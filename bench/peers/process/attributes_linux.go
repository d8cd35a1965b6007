package process

import "syscall"

// attributes returns the attributes of a server: the kernel kills it if the benchmark is
// killed. Its own process group keeps Ctrl-C in a terminal from it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
