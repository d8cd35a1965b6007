package redisfleet

import "syscall"

// attributes keep Ctrl-C on the terminal away from the servers, which are
// stopped last, and end them with this process if it is killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
