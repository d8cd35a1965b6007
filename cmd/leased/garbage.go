package main

import (
	"os"
	"runtime/debug"
)

// ballastBytes is the size of the ballast, and garbagePercent the garbage that may accumulate before the next
// collection, as a percentage of live memory and ballast.
const ballastBytes, garbagePercent = 16 << 20, 50

// limitGarbage makes the garbage collector of a member run less often with little live memory, and keep less garbage
// with much. It returns a ballast, which the caller keeps: the collector counts it as live memory, but it
// takes none, because nothing touches its pages, and no time, because it has no pointers. If the operator has set
// GOGC or GOMEMLIMIT, it does nothing. See docs/adr/0039-garbage.md.
func limitGarbage() (ballast []byte) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	debug.SetGCPercent(garbagePercent)
	return make([]byte, ballastBytes)
}
