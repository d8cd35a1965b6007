package build_test

import (
	"fmt"

	"github.com/leased-project/leased/internal/server/build"
)

// A member reports the formats that it reads.
func ExampleInfo() {
	info := build.Info("v1.2.3")
	fmt.Println(info.Version, info.Formats["log-entry"])
	// Output: v1.2.3 1
}
