//go:build unix && !linux

package redisfleet

import "syscall"

// attributes keep Ctrl-C on the terminal away from the servers, which are
// stopped last.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
