//go:build !linux

package testserver

import (
	"os/user"
	"syscall"
)

// attributes run a program as u. Where no signal follows the death of a parent,
// a killed test leaves its server behind.
func attributes(u *user.User, _ bool) *syscall.SysProcAttr {
	if u == nil {
		return nil
	}
	return &syscall.SysProcAttr{Credential: credential(u)}
}
