package scripts_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/leased-project/leased/redlockadapter/scripts"
)

// Print what a script does, for an operator who checks the scripts on a server.
func ExampleText() {
	text, err := scripts.Text("acquire")
	if err != nil {
		log.Fatal(err)
	}
	first, _, _ := strings.Cut(text, "\n")
	fmt.Println(first)
	// Output: -- acquire: take the locks of one attempt on this node and accept a token for it.
}
