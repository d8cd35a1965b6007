//go:build linux

package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/property"
)

// The classes and names of locks. Those of one generation are used for a limited time;
// those of always are used in the whole run.
const (
	correctness = "c"
	efficiency  = "e"
	switched    = "s" // migrated between the modes
	inPostgres  = "p" // in a database, without a service
	always      = "always"

	switchedPrefix = switched + "/"

	generationTime = 20 * time.Second
	locksOfOne     = 3 // in each class and generation
)

// resourceName returns the name of a lock.
func resourceName(class, generation string, number int) fencing.Resource {
	return fencing.Resource(fmt.Sprintf("%s/%s/%d", class, generation, number))
}

// historyOf returns the history that a lock belongs to, as "c/17".
func historyOf(resource fencing.Resource) string {
	name := string(resource)
	return name[:max(strings.LastIndexByte(name, '/'), 0)]
}

// Spec configures a worker.
type Spec struct {
	Name         string
	Number, Life int
	Seed         uint64
	Endpoints    []string
	CA, DSN      string
	Locks        string        // DSN of the database that has the locks, if there are no members
	Began        time.Duration // of the run, on the monotonic clock
	Classes      []string      // of the locks that it uses
	// ThroughMember disables direct connections to Redis.
	ThroughMember bool
}

// specVariable is the environment variable with the Spec of a worker, as JSON.
const specVariable = "LEASED_TORTURE_WORKER"

func (s Spec) env() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // it has only strings and numbers
	}
	return specVariable + "=" + string(text)
}

// Work is the main function of a worker process. It prints events to out until in ends.
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	return workOn(ctx, in, out, func(s Spec) (Storage, error) { return openDatabase(ctx, s.DSN) })
}

func workOn(ctx context.Context, in io.Reader, out io.Writer, open func(Spec) (Storage, error)) error {
	var s Spec
	if err := json.Unmarshal([]byte(os.Getenv(specVariable)), &s); err != nil {
		return fmt.Errorf("%s is not set: only leased-torture starts this command", specVariable)
	}
	storage, err := open(s)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out) // one write per line, so that a kill loses no printed event
	h, err := newHolder(ctx, s, storage, os.Stderr, func(e property.Event) { _ = encoder.Encode(e) })
	if err != nil {
		return err
	}
	defer h.close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
	for ctx.Err() == nil {
		class := s.Classes[h.random.IntN(len(s.Classes))]
		generation := fmt.Sprint(int((monotonic() - s.Began) / generationTime))
		if h.random.IntN(40) == 0 {
			generation = always
		}
		h.attempt(ctx, resourceName(class, generation, h.random.IntN(locksOfOne)))
		wait(ctx, rand.N(thinkTime))
	}
	return nil
}
