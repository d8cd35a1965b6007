package kubegate_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/kubegate"
)

// The policy is installed once for a cluster, here with requirements for one controller.
func ExamplePolicy() {
	text, err := kubegate.Policy(fencing.Rule{}, "system:serviceaccount:shop:widgets")
	if err != nil {
		log.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "kind: ") {
			fmt.Print(line)
		}
	}
	// Output:
	// kind: ValidatingAdmissionPolicy
	// kind: ValidatingAdmissionPolicyBinding
	// kind: ValidatingAdmissionPolicy
	// kind: ValidatingAdmissionPolicyBinding
}
