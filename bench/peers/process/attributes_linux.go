package process

import "syscall"

// attributes returns the attributes of a server: the kernel kills it if the benchmark is
// killed. It has its own process group, so Ctrl-C in a terminal does not stop it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
