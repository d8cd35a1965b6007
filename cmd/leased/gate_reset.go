package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/filegate"
	"github.com/leased-project/leased/storagegate/redisgate"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

// resetFlags are the flags of gate reset.
type resetFlags struct {
	access *access

	dialect, address, files, admin string
	lock, wait                     string
	mark, token                    uint64
}

func setUpGateReset(c *cobra.Command) {
	f := &resetFlags{}
	c.Args = exactly(1, "the name of a resource")
	f.access = addRedisAccess(c)
	flags := c.Flags()
	flags.StringVar(&f.dialect, "dialect", "", "print SQL for a database: postgres, mysql or sqlite")
	flags.StringVar(&f.address, "redis", "", "reset the mark on this Redis server, HOST:PORT")
	flags.StringVar(&f.files, "files", "", "reset the mark of a file in this folder")
	flags.StringVar(&f.admin, "proxy", "", "reset the mark of the gate proxy with this admin address")
	flags.Uint64Var(&f.mark, "mark", 0, "current mark, from the error of a refused write (default: read it; required "+
		"with --dialect)")
	flags.StringVar(&f.lock, "lock", "", "name of the lock (default: the resource); for a permit, the resource without "+
		"its slot")
	flags.StringVar(&f.wait, "wait", "1m", "how long to wait for the lock")
	flags.Uint64Var(&f.token, "token", 0, "token of a lease of this lock that was acquired after the gate was closed "+
		"(default: acquire the lock)")
	c.RunE = interruptible(func(c *cobra.Command, args []string) error {
		resource, err := fencing.ParseResource(args[0])
		if err != nil {
			return usageError(err)
		}
		gate, err := f.gate(c, resource)
		if err != nil {
			return err
		}
		return f.run(c, gate, resource) // after a signal, the service releases what it may have granted
	})
}

// resettable is what the command needs of a gate.
type resettable interface {
	storagegate.Resetter
	Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error)
}

// gate returns the gate that the flags name.
func (f *resetFlags) gate(c *cobra.Command, resource fencing.Resource) (resettable, error) {
	switch {
	case !exactlyOne(f.dialect, f.address, f.files, f.admin):
		return nil, usageError(errors.New("give one of --dialect, --redis, --files and --proxy to say where the mark " +
			"is stored"))
	case f.files != "":
		if _, err := os.Stat(f.files); err != nil { // New would create it
			return nil, usageError(fmt.Errorf("--files: %w", err))
		}
		return filegate.New(f.files, fencing.Rule{})
	case f.admin != "":
		return proxyMarks{c, f.admin}, nil
	case f.address != "":
		nodes, err := f.access.redisNodes(f.address)
		if err != nil {
			return nil, err
		}
		return redisgate.New(redis.NewClient(nodes.Options(f.address)), fencing.Rule{}), nil
	}
	dialect, err := sqlgate.ParseDialect(f.dialect)
	if err != nil {
		return nil, usageError(fmt.Errorf("--dialect: %w", err))
	}
	if f.mark == 0 {
		return nil, usageError(fmt.Errorf("--mark is required with --dialect: SELECT mark FROM leased_marks WHERE "+
			"resource = '%s'", resource))
	}
	return printedSQL{c, dialect}, nil
}

// run gets a token and resets the mark to it.
func (f *resetFlags) run(c *cobra.Command, gate resettable, resource fencing.Resource) error {
	mark := fencing.Token(f.mark)
	if mark == fencing.None {
		var err error
		if mark, err = gate.Mark(c.Context(), resource); err != nil {
			return err
		}
	}
	if mark == fencing.None {
		return fmt.Errorf("reset the mark of %q: it has none; check the name of the resource", string(resource))
	}
	token, release, err := f.freshToken(c, resource)
	if err != nil {
		return err
	}
	err = gate.Reset(c.Context(), resource, mark, token)
	if err == nil { // also if the release fails
		_, err = fmt.Fprintf(c.ErrOrStderr(), "%s: mark %d, new mark %d\n", resource, mark, token)
	}
	return cmp.Or(err, release())
}

// freshToken acquires the lock, unless the operator gave a token.
func (f *resetFlags) freshToken(c *cobra.Command, resource fencing.Resource) (
	token fencing.Token, release func() error, err error) {
	if f.token != 0 {
		return fencing.Token(f.token), func() error { return nil }, nil
	}
	lock := cmp.Or(f.lock, string(resource))
	got, err := f.access.acquire(c.Context(), &pb.AcquireRequest{Resource: lock, Wait: f.wait, Holder: defaultHolder()})
	if err != nil {
		return fencing.None, nil, fmt.Errorf("get a token above all earlier ones: %w", err)
	}
	return fencing.Token(got.Token), func() error { return f.access.release(c.Context(), lock, got.Token) }, nil
}

// printedSQL prints the SQL that resets a mark.
type printedSQL struct {
	c       *cobra.Command
	dialect sqlgate.Dialect
}

// Mark returns None: this program does not connect to databases.
func (printedSQL) Mark(context.Context, fencing.Resource) (fencing.Token, error) {
	return fencing.None, nil
}

// Reset prints the SQL.
func (p printedSQL) Reset(_ context.Context, resource fencing.Resource, expected, to fencing.Token) error {
	text, err := sqlgate.ResetSQL(p.dialect, resource, expected, to)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(p.c.OutOrStdout(), text)
	return err
}

// proxyMarks are the marks of a running gate proxy.
type proxyMarks struct {
	c     *cobra.Command
	admin string
}

// Mark asks the proxy for a mark.
func (p proxyMarks) Mark(_ context.Context, resource fencing.Resource) (fencing.Token, error) {
	body, err := askProxy(p.c, http.MethodGet, p.admin, "/mark", url.Values{"resource": {string(resource)}})
	if err != nil {
		return fencing.None, err
	}
	var answer struct {
		Mark fencing.Token `json:"mark"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fencing.None, fmt.Errorf("decode the mark: %w", err)
	}
	return answer.Mark, nil
}

// Reset asks the proxy to lower a mark.
func (p proxyMarks) Reset(_ context.Context, resource fencing.Resource, expected, to fencing.Token) error {
	_, err := askProxy(p.c, http.MethodPost, p.admin, "/reset",
		url.Values{"resource": {string(resource)}, "expected": {expected.String()}, "to": {to.String()}})
	return err
}
