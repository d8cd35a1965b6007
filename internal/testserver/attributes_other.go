//go:build !linux

package testserver

import (
	"os/user"
	"syscall"
)

// attributes returns the process attributes that run a program as user u. These
// systems send no signal when a parent dies, so a killed test leaves its server
// running.
func attributes(u *user.User, _ bool) *syscall.SysProcAttr {
	if u == nil {
		return nil
	}
	return &syscall.SysProcAttr{Credential: credential(u)}
}
