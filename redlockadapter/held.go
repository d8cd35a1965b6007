package redlockadapter

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// The id of an attempt is the wall time in seconds, and a random number.
const (
	timeSize = 4
	idSize   = timeSize + 5
)

// attemptName returns the name of a new attempt: the session, the nonce, an id, and the user
// if there is one. The id distinguishes attempts of one session with one nonce, in this process
// or another: an attempt that reused the name of an earlier one could be released by a late
// message. The time in it is for people, see sinceOf. Names are short, because every record
// has one.
func attemptName(session engine.SessionID, nonce engine.Nonce, at time.Time, user string) string {
	var id [idSize]byte
	binary.BigEndian.PutUint32(id[:], uint32(at.Unix()))
	_, _ = rand.Read(id[timeSize:]) // never fails
	var room [64]byte
	name := append(base64.RawURLEncoding.AppendEncode(room[:0], session[:]), '.')
	name = append(strconv.AppendUint(name, uint64(nonce), 10), '.')
	name = base64.RawURLEncoding.AppendEncode(name, id[:])
	if user != "" {
		name = append(append(name, '.'), user...)
	}
	return string(name)
}

// UserOf returns the user in the name of an attempt, empty if it was made without users.
// A process with credentials of the Redis nodes can write any name.
func UserOf(name string) string {
	if parts := strings.SplitN(name, ".", 4); len(parts) == 4 { // a user may contain dots
		return parts[3]
	}
	return ""
}

// sinceOf returns the time in the name of an attempt: when it was granted, by the clock of
// the process that acquired it. Nothing depends on it.
func sinceOf(name string) time.Time {
	parts := strings.SplitN(name, ".", 4)
	if len(parts) < 3 {
		return time.Time{}
	}
	id, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || len(id) != idSize {
		return time.Time{}
	}
	return plausible(time.Unix(int64(binary.BigEndian.Uint32(id)), 0))
}

// The times that plausible accepts.
var (
	earliestTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	latestTime   = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
)

// plausible returns a time that another process wrote to a node, or the zero time if it
// cannot be right.
func plausible(t time.Time) time.Time {
	if t.Before(earliestTime) || t.After(latestTime) {
		return time.Time{}
	}
	return t
}

// AttemptOf returns the session and the nonce in the name of an attempt, zero if it has
// none.
func AttemptOf(name string) (session engine.SessionID, nonce engine.Nonce) {
	id, rest, _ := strings.Cut(name, ".")
	number, _, _ := strings.Cut(rest, ".")
	if raw, err := base64.RawURLEncoding.DecodeString(id); err == nil && len(raw) == len(session) {
		session = engine.SessionID(raw)
	}
	n, _ := strconv.ParseUint(number, 10, 64)
	return session, engine.Nonce(n)
}

// details are stored in the record of a lock, for other processes.
type details struct {
	Holder   string             `json:"holder,omitempty"`
	TTL      int64              `json:"ttl"` // milliseconds
	Set      []fencing.Resource `json:"set,omitempty"`
	Metadata map[string]string  `json:"metadata,omitempty"`
}

// detailsText is the details of leases with an equal holder and TTL, and nothing else.
type detailsText struct {
	holder string
	ttl    time.Duration
	text   string
}

// detailsOf returns the details of a lease. It keeps the last text, since most leases of a process have the same.
func (b *Backend) detailsOf(h *engine.Held) string {
	if len(h.Resources) > 1 || len(h.Metadata) > 0 {
		return detailsOf(h)
	}
	last := b.details.Load()
	if last == nil || last.holder != h.Holder || last.ttl != h.TTL {
		last = &detailsText{h.Holder, h.TTL, detailsOf(h)}
		b.details.Store(last)
	}
	return last.text
}

// detailsOf returns the details of a lease as JSON.
func detailsOf(h *engine.Held) string {
	d := details{Holder: h.Holder, TTL: h.TTL.Milliseconds(), Metadata: h.Metadata}
	if len(h.Resources) > 1 {
		d.Set = h.Resources
	}
	text, err := json.Marshal(d)
	if err != nil {
		panic(err) // strings and a number can be encoded
	}
	return string(text)
}

// leaseOf returns the lease of an attempt, without its token, from the details in the
// record of one of its locks.
func leaseOf(name, text string, resource fencing.Resource) engine.Held {
	var d details
	_ = json.Unmarshal([]byte(text), &d) // without details the lease has no TTL, and cannot be renewed
	if d.TTL < 0 || d.TTL > engine.MaxTTL.Milliseconds() {
		d.TTL = 0
	}
	h := engine.Held{Name: name, Resources: []fencing.Resource{resource}, TTL: time.Duration(d.TTL) * time.Millisecond,
		Holder: d.Holder, Metadata: d.Metadata}
	if len(d.Set) > 0 {
		h.Resources = d.Set
	}
	h.Session, h.Nonce = AttemptOf(name)
	h.User = UserOf(name)
	return h
}

// drift is subtracted from the validity of a lease, since clocks may run at different
// rates.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }
