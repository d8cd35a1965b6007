//go:build !linux

package process

import "syscall"

// attributes returns the attributes of a server. Its own process group keeps Ctrl-C in a
// terminal from it.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
