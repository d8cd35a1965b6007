//go:build unix && !linux

package redisfleet

import "syscall"

// attributes puts a server into its own process group, so that Ctrl-C does not reach
// it: the servers are stopped last.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
