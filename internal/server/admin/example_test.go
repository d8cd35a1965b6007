package admin_test

import (
	"fmt"

	"github.com/leased-project/leased/internal/server/admin"
)

// A member reports the formats that it reads.
func ExampleBuildInfo() {
	info := admin.BuildInfo("v1.2.3")
	fmt.Println(info.Version, info.Formats["log-entry"])
	// Output: v1.2.3 1
}
