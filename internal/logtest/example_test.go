package logtest_test

import (
	"fmt"
	"log/slog"

	"github.com/leased-project/leased/internal/logtest"
)

func ExampleLog() {
	log := logtest.New(slog.LevelInfo)
	log.Logger().With("id", "a").Info("became leader", "term", 2)
	log.Logger().Debug("granted")
	for _, line := range log.Lines("became leader") {
		fmt.Println(line.Message, line.Values["id"], line.Values["term"], log.Count(""))
	}
	// Output: became leader a 2 1
}
