//go:build unix

package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/filegate"
)

// account is the name of the lock and of the file that it protects.
const account fencing.Resource = "account/7"

// TTL is the TTL of the holders' leases: the time until the lock of a stopped
// holder is free.
const TTL = 2 * time.Second

// The opening balance of the account, and what the holders add to it.
const (
	opening   = 100
	aliceAdds = -30
	bobAdds   = 50
)

// Pause runs two holders twice: with a lock alone, and with a lock and a gate.
type Pause struct {
	// Endpoint is the API address of the service that provides the lock.
	Endpoint string
	// Dir is a folder for the account.
	Dir string
	// Holder is the command line of a process that calls Hold.
	Holder []string
	// Out receives the report.
	Out io.Writer

	start time.Time
}

// Run runs the demo. It fails if an update is not lost without a gate, or is lost
// with one.
func (d *Pause) Run(ctx context.Context) error {
	fmt.Fprintf(d.Out, "Alice takes %d from an account and Bob adds %d. Each is a process that first acquires the lock,\n"+
		"with a TTL of %v. The account is a file.\n", -aliceAdds, bobAdds, TTL)
	fmt.Fprintln(d.Out, "\n1. A lock, and no gate")
	balance, err := d.update(ctx, false)
	if err != nil {
		return err
	}
	if balance != opening+aliceAdds {
		return fmt.Errorf("the balance is %d: without a gate, Alice's late write should have replaced Bob's", balance)
	}
	d.say("", "the balance is %d: Bob's %d are lost, although both held the lock", balance, bobAdds)

	fmt.Fprintln(d.Out, "\n2. The same lock, and a gate that checks the token")
	if balance, err = d.update(ctx, true); err != nil {
		return err
	}
	if balance != opening+aliceAdds+bobAdds {
		return fmt.Errorf("the balance is %d: with a gate, it should include both updates", balance)
	}
	d.say("", "the balance is %d: it includes both updates", balance)
	fmt.Fprintln(d.Out, "\nAlice could not have prevented this by checking her lease: she was stopped after any check "+
		"she could have made.")
	return nil
}

// update lets both holders update the account and returns the balance. Alice is
// stopped between her read and her write until Bob is done.
func (d *Pause) update(ctx context.Context, gated bool) (int, error) {
	dir := filepath.Join(d.Dir, fmt.Sprintf("gated-%t", gated))
	gate, err := filegate.New(dir, fencing.Rule{})
	if err != nil {
		return 0, err
	}
	path := gate.Path(account)
	if err := os.WriteFile(path, []byte(fmt.Sprint(opening)), 0o600); err != nil {
		return 0, err
	}
	d.start = time.Now()
	alice, err := d.startHolder(ctx, "alice", dir, aliceAdds, gated)
	if err != nil {
		return 0, err
	}
	defer alice.kill()
	if err := alice.until(stepRead); err != nil {
		return 0, err
	}
	if err := alice.stop(); err != nil {
		return 0, err
	}
	d.say("", "SIGSTOP: alice is stopped between her read and her write")
	bob, err := d.startHolder(ctx, "bob", dir, bobAdds, gated)
	if err != nil {
		return 0, err
	}
	defer bob.kill()
	if err := bob.finish(); err != nil {
		return 0, err
	}
	d.say("", "SIGCONT: alice continues, unaware of the pause")
	if err := alice.resume(); err != nil {
		return 0, err
	}
	if err := alice.finish(); err != nil {
		return 0, err
	}
	return readBalance(path)
}

// say prints one line of the report, with the time.
func (d *Pause) say(who, format string, args ...any) {
	fmt.Fprintf(d.Out, "  %5.2fs  %-6s %s\n", time.Since(d.start).Seconds(), who, fmt.Sprintf(format, args...))
}
