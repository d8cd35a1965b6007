//go:build !linux

package engine

import "time"

// boottime is 0 where the system offers no such clock: the other one decides.
func boottime() time.Duration { return 0 }
