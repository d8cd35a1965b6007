//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "leased-torture runs on Linux only: it needs network namespaces, strace and a clock that "+
		"processes share")
	os.Exit(1)
}
