package filegate_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/filegate"
)

func ExampleGate() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "reports")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	gate, err := filegate.New(dir, fencing.Rule{})
	if err != nil {
		log.Fatal(err)
	}
	for _, token := range []fencing.Token{34, 33} { // the newer holder, then the paused one
		err := gate.Do(ctx, "report.txt", token, func(file *filegate.File) error {
			_, err := fmt.Fprintln(file, "written with token", token)
			return err
		})
		fmt.Println(err)
	}
	file, err := os.Open(gate.Path("report.txt"))
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	if _, err := io.Copy(os.Stdout, file); err != nil {
		log.Fatal(err)
	}
	// Output:
	// <nil>
	// stale fencing token 33 for "report.txt": 34 has been admitted; the lease is lost, stop writing
	// written with token 34
}
