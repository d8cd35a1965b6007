//go:build !linux

package testserver

import (
	"os/user"
	"syscall"
)

// attributes returns the process attributes that run a program as user u. These
// systems send no signal when a parent dies, so a killed test leaves its server
// running.
func attributes(u *user.User, bound bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: bound}
	if u != nil {
		a.Credential = credential(u)
	}
	return a
}
