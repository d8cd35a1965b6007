package testserver

import (
	"os/user"
	"syscall"
)

// attributes run a program as u. With bound, the program ends with the test
// even if the test is killed and cannot stop it, and no earlier: a terminal's
// Ctrl-C is not for it.
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
