//go:build !linux

package process

import "syscall"

// attributes returns the attributes of a server. It has its own process group, so Ctrl-C
// in a terminal does not stop it.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
