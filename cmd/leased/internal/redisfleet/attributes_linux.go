package redisfleet

import "syscall"

// attributes puts a server into a process group of its own, so that Ctrl-C does
// not reach it: the servers are stopped last. The kernel ends the server if this
// process is killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
