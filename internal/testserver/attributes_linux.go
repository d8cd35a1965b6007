package testserver

import (
	"os/user"
	"syscall"
)

// attributes returns the process attributes that run a program as user u. With
// bound, the kernel kills the program if the test is killed. The program has its
// own process group, so Ctrl-C in a terminal does not reach it.
func attributes(u *user.User, bound bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{}
	if bound {
		a.Pdeathsig, a.Setpgid = syscall.SIGKILL, true
	}
	if u != nil {
		a.Credential = credential(u)
	}
	return a
}
