package scripts

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/redlockadapter/redisconn"
)

// Record is the record of a lock on a node.
type Record struct {
	Name    string        // of the attempt that holds the lock, empty if it is free
	Left    time.Duration // until the attempt expires on the node
	Token   fencing.Token // of the attempt: the granted one once the node knows it, before that the accepted one
	Renewed fencing.Token // of the lease that was renewed last
	Details string        // of the attempt
	Ended   string        // the attempt that was released or broken last
	Cause   Cause         // of Ended
	Past    fencing.Token // the largest one whose lease was released or broken
	Waiters []Waiter      // in order
}

// Granted returns the token of the attempt if the node knows that it was granted: it was renewed with it.
func (r *Record) Granted() fencing.Token {
	if r.Renewed != r.Token {
		return fencing.None
	}
	return r.Token
}

// Waiter is a process that waits for a lock.
type Waiter struct {
	Name  string    // as passed to Acquire
	Since time.Time // its ticket, by the clock of the process; any value is possible
}

// Inspect returns a request for the record of a lock. A node that has seen a newer version of the policies refuses it.
func Inspect(resource fencing.Resource, version uint64) *redisconn.Request {
	return redisconn.NewRequest(inspectScript, lockKeys([]fencing.Resource{resource}, nodeKey),
		strconv.FormatUint(version, 10))
}

// recordFields is the number of fields before the waiters in a reply to Inspect.
const recordFields = 8

// ParseRecord returns the record in a reply to Inspect.
func ParseRecord(got redisconn.Reply) (Record, error) {
	w := got.Words
	switch {
	case got.Err != nil:
		return Record{}, got.Err
	case len(w) == 1 || len(w) == 2:
		return Record{}, refusalOf(got)
	case len(w) < recordFields:
		return Record{}, fmt.Errorf("%w: record %q", redisconn.ErrProtocol, w)
	}
	left, err := fromMillis(w[1])
	if err != nil {
		return Record{}, fmt.Errorf("%w: time left %q", redisconn.ErrProtocol, w[1])
	}
	r := Record{Name: w[0], Left: left, Details: w[5], Ended: w[6], Cause: Cause(w[7])}
	for i, token := range []*fencing.Token{&r.Token, &r.Renewed, &r.Past} {
		if *token, err = fencing.ParseToken(w[2+i]); err != nil {
			return Record{}, err
		}
	}
	if left == 0 {
		r.Name = ""
	}
	for pair := range slices.Chunk(w[recordFields:], 2) {
		if len(pair) != 2 {
			return Record{}, fmt.Errorf("%w: waiter %.40q without a ticket", redisconn.ErrProtocol, pair[0])
		}
		micros, _ := strconv.ParseFloat(pair[1], 64) // a score of Redis
		r.Waiters = append(r.Waiters, Waiter{Name: pair[0], Since: time.UnixMicro(int64(micros))})
	}
	return r, nil
}

// scanStep is the number of keys that one step of a scan looks at.
const scanStep = 500

// List returns the locks in use on a node whose names begin with prefix. A node that has seen a newer version of the
// policies refuses it.
func List(ctx context.Context, c Node, prefix string, version uint64) ([]fencing.Resource, error) {
	var names []fencing.Resource
	for cursor := "0"; ; {
		got, err := c.Do(ctx, redisconn.NewRequest(listScript, []string{nodeKey}, cursor, prefix, strconv.Itoa(scanStep),
			strconv.FormatUint(version, 10)))
		if err != nil {
			return nil, err
		}
		page, err := listed(got)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Addr(), err)
		}
		names = append(names, page...)
		if cursor = got.Word(0); cursor == "0" {
			return names, nil
		}
	}
}

// listed returns the names in a reply to the list script, after its cursor.
func listed(got redisconn.Reply) ([]fencing.Resource, error) {
	switch {
	case len(got.Words) == 0:
		return nil, fmt.Errorf("%w: a list without a cursor", redisconn.ErrProtocol)
	case got.Words[0] == "empty" || got.Words[0] == "format" || got.Words[0] == "version":
		return nil, refusalOf(got)
	}
	names := make([]fencing.Resource, len(got.Words)-1)
	for i, name := range got.Words[1:] {
		names[i] = fencing.Resource(name)
	}
	return names, nil
}
