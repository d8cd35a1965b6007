//go:build unix

package pausedemo

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/proptest/spacetime"
	"github.com/leased-project/leased/storagegate/filegate"
)

// account is the lock, and the file that it is for.
const account fencing.Resource = "account/7"

// TTL is that of the holders' leases: how long the lock stays with one that is
// stopped.
const TTL = 2 * time.Second

// The account, and what the holders add to it.
const (
	opening   = 100
	aliceAdds = -30
	bobAdds   = 50
)

// Demo tells the story twice: with a lock alone, and with a gate.
type Demo struct {
	// Endpoint is the API of the service that the lock is taken from.
	Endpoint string
	// Dir is a folder for the account.
	Dir string
	// Holder is how to start a process that calls Hold.
	Holder []string
	// Out is where the story is told.
	Out io.Writer

	began    time.Time
	history  *history
	sections []spacetime.Section
}

// Run tells the story. It fails if it went in another way than it should.
func (d *Demo) Run(ctx context.Context) error {
	fmt.Fprintf(d.Out, "Alice takes %d from an account, Bob adds %d. Both are processes, and take a lock with a\n"+
		"lease of %v first. The account is a file.\n", -aliceAdds, bobAdds, TTL)
	fmt.Fprintln(d.Out, "\n1. A lock, and no gate")
	balance, err := d.act(ctx, false)
	if err != nil {
		return err
	}
	if balance != opening+aliceAdds {
		return fmt.Errorf("the account holds %d: without a gate Alice should have written over Bob's update", balance)
	}
	d.say("", "the account holds %d: Bob's %d are lost, though both had the lock", balance, bobAdds)
	d.sections = []spacetime.Section{d.history.section("1. A lock, and no gate",
		fmt.Sprintf("Alice has read %d before she was stopped. When she goes on, she writes over what Bob has written: his %d are lost.", opening, bobAdds))}

	fmt.Fprintln(d.Out, "\n2. The same lock, and a gate that checks the token")
	if balance, err = d.act(ctx, true); err != nil {
		return err
	}
	if balance != opening+aliceAdds+bobAdds {
		return fmt.Errorf("the account holds %d: with a gate both updates should be there", balance)
	}
	d.say("", "the account holds %d: both updates are there", balance)
	d.sections = append(d.sections, d.history.section("2. The same lock, and a gate that checks the token",
		"Bob's token has raised the mark of the gate. Alice's late write has an older one and is refused; she begins anew, and nothing is lost."))
	fmt.Fprintln(d.Out, "\nNo check of the lease could have helped: Alice was stopped after any check she could have made.")
	return nil
}

// act plays the story once and returns what the account holds in the end.
func (d *Demo) act(ctx context.Context, gated bool) (int, error) {
	dir := filepath.Join(d.Dir, fmt.Sprintf("gated-%t", gated))
	gate, err := filegate.New(dir, fencing.Rule{})
	if err != nil {
		return 0, err
	}
	path := gate.Path(account)
	if err := os.WriteFile(path, []byte(fmt.Sprint(opening)), 0o600); err != nil {
		return 0, err
	}
	d.began = time.Now()
	d.history = &history{began: d.began, gated: gated}
	alice, err := d.cast(ctx, "alice", dir, aliceAdds, gated)
	if err != nil {
		return 0, err
	}
	defer alice.end()
	if err := alice.until(wordRead); err != nil {
		return 0, err
	}
	if err := alice.stop(); err != nil {
		return 0, err
	}
	d.say("", "SIGSTOP: alice stands still, between her read and her write")
	bob, err := d.cast(ctx, "bob", dir, bobAdds, gated)
	if err != nil {
		return 0, err
	}
	defer bob.end()
	if err := bob.finish(); err != nil {
		return 0, err
	}
	d.say("", "SIGCONT: alice goes on, and knows nothing of all that")
	if err := alice.resume(); err != nil {
		return 0, err
	}
	if err := alice.finish(); err != nil {
		return 0, err
	}
	return readBalance(path)
}

// say tells what happened, and when.
func (d *Demo) say(who, format string, args ...any) {
	fmt.Fprintf(d.Out, "  %5.2fs  %-6s %s\n", time.Since(d.began).Seconds(), who, fmt.Sprintf(format, args...))
}
