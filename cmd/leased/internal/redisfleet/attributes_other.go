//go:build !unix

package redisfleet

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }
