package scripts

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/redlockadapter/quorum"
	"github.com/leased-project/leased/redlockadapter/redisconn"
)

// Attempt describes an attempt to the scripts.
type Attempt struct {
	// Name identifies the attempt on the nodes, which call it the nonce. It begins with
	// the session, followed by a dot.
	Name      string
	Resources []fencing.Resource
	// Version is the version of the policies that the caller acts under.
	Version uint64
	// Fleet is the fingerprint of the caller's fleet.
	Fleet string
	TTL   time.Duration
	// Details are stored in the records, for other processes.
	Details string
}

// Acquire takes the locks and has a token accepted. A process that waits passes its
// name as waiter and its place in the queue as ticket, the wall time in microseconds at which it
// began to wait; both are empty otherwise. granted is the granted token, None while the
// attempt is not granted.
func (a *Attempt) Acquire(waiter, ticket string, granted fencing.Token) *redisconn.Request {
	known := ""
	if granted != fencing.None {
		known = granted.String()
	}
	args := []string{a.version(), a.Fleet, a.Name, millis(a.TTL), a.Details, known, waiter, ticket}
	switch { // each argument costs the node time
	case waiter == "" && known == "":
		args = args[:5]
	case waiter == "":
		args = args[:6]
	}
	return redisconn.NewRequest(acquireScript, lockKeys(a.Resources, nodeKey), args...)
}

// Raise has a larger token accepted where the attempt holds the locks.
func (a *Attempt) Raise(token fencing.Token) *redisconn.Request {
	return redisconn.NewRequest(raiseScript, lockKeys(a.Resources, nodeKey), a.version(), a.Fleet, a.Name, token.String())
}

// Renew extends the lease with this token by its TTL.
func (a *Attempt) Renew(token fencing.Token) *redisconn.Request {
	return redisconn.NewRequest(renewScript, lockKeys(a.Resources, nodeKey), a.version(), a.Fleet, a.Name, millis(a.TTL),
		a.Details, token.String())
}

func (a *Attempt) version() string { return strconv.FormatUint(a.Version, 10) }

// Accepted returns the token that a node accepted in reply to Acquire, Raise or Renew,
// or the reason why it refused. A number that is not a token is an error: the node
// does not run the scripts.
func Accepted(got redisconn.Reply) (fencing.Token, error) {
	switch {
	case got.Err != nil:
		return fencing.None, got.Err
	case got.Words == nil && fencing.Token(got.Int).Valid():
		return fencing.Token(got.Int), nil
	case got.Words == nil:
		return fencing.None, fmt.Errorf("%w: token %d", redisconn.ErrProtocol, got.Int)
	}
	return fencing.None, refusalOf(got)
}

// Vote returns the vote in a reply to Acquire or Raise, and why the node did not accept.
func Vote(got redisconn.Reply) (quorum.Vote, error) {
	token, err := Accepted(got)
	switch {
	case err == nil:
		return quorum.Vote{State: quorum.Accepted, Token: token}, nil
	case got.Err != nil:
		return quorum.Vote{State: quorum.Failed}, err
	case got.Word(0) == "held":
		left, _ := fromMillis(got.Word(1)) // a hint
		// A session passes a lock on so fast that the nodes name different attempts of
		// it. The session still holds the lock.
		session, _, _ := strings.Cut(got.Word(2), ".")
		return quorum.Vote{State: quorum.Held, Left: left, Holder: session}, err
	}
	return quorum.Vote{State: quorum.Refused}, err
}

// Leave returns a request that removes a waiter from the queues of locks.
func Leave(resources []fencing.Resource, waiter string) *redisconn.Request {
	keys := make([]string, len(resources))
	for i, r := range resources {
		keys[i] = waitingPrefix + string(r)
	}
	return redisconn.NewRequest(leaveScript, keys, waiter)
}

// Wake selects the waiting process that a release wakes.
type Wake string

// The choices of Wake.
const (
	WakeNobody Wake = "none"
	WakeNext   Wake = "next" // the longest waiter, if the release freed the lock
	WakeAny    Wake = "any"  // the longest waiter
)

// Cause is how an attempt ended.
type Cause string

// The causes that a record knows.
const (
	Released Cause = "released"
	Broken   Cause = "broken"
	// Withdrawn is the end of an attempt that its process has not reported as granted. It is recorded as released.
	Withdrawn Cause = "withdrawn"
)

// Release ends an attempt on a node.
type Release struct {
	Name      string
	Resources []fencing.Resource
	Cause     Cause
	Wake      Wake
	// Channel begins the names of the channels on which processes are woken.
	Channel string
	// Late refuses a copy of the attempt's acquire or renewal that arrives after the
	// release, over another connection.
	Late bool
	// Token is the granted token, None if the attempt was not granted.
	Token fencing.Token
	// Version and Fleet are those of the caller. A node confirms a break only if it votes under them.
	Version uint64
	Fleet   string
}

// Request returns the call of the script.
func (r *Release) Request() *redisconn.Request {
	args := []string{r.Name, string(r.Cause), r.Channel, string(r.Wake), flag(r.Late), r.Token.String()}
	if r.Cause == Broken {
		args = append(args, strconv.FormatUint(r.Version, 10), r.Fleet)
	}
	return redisconn.NewRequest(releaseScript, lockKeys(r.Resources), args...)
}

// Confirmed returns whether a process was woken, from the reply to a Release. The error is why the node does not
// confirm that the attempt has ended.
func Confirmed(got redisconn.Reply) (woken bool, err error) {
	switch {
	case got.Err != nil:
		return false, got.Err
	case got.Words != nil:
		return false, refusalOf(got)
	}
	return got.Int > 0, nil
}
