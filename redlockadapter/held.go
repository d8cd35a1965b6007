package redlockadapter

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// attemptName returns the name of one try of a nonce: the session, the nonce, and
// a number that no other try has, in this process or another. A try that is
// repeated under the name of an earlier one could be released by a late message.
func (b *Backend) attemptName(session engine.SessionID, nonce engine.Nonce) string {
	text := make([]byte, 0, 48)
	text = base64.RawURLEncoding.AppendEncode(text, session[:])
	text = append(text, '.')
	text = strconv.AppendUint(text, uint64(nonce), 10)
	text = append(text, '.')
	text = append(text, b.process...)
	return string(strconv.AppendUint(text, b.tries.Add(1), 36))
}

// sessionOf returns the part of a name that all attempts of a session share.
func sessionOf(name string) string {
	session, _, _ := strings.Cut(name, ".")
	return session
}

// parseName returns the session and the nonce of a name.
func parseName(name string) (session engine.SessionID, nonce engine.Nonce) {
	id, rest, _ := strings.Cut(name, ".")
	number, _, _ := strings.Cut(rest, ".")
	if raw, err := base64.RawURLEncoding.DecodeString(id); err == nil && len(raw) == len(session) {
		session = engine.SessionID(raw)
	}
	n, _ := strconv.ParseUint(number, 10, 64)
	return session, engine.Nonce(n)
}

// details is what the record of a lock has for other processes.
type details struct {
	Holder   string             `json:"holder,omitempty"`
	TTL      int64              `json:"ttl"` // milliseconds
	Set      []fencing.Resource `json:"set,omitempty"`
	Metadata map[string]string  `json:"metadata,omitempty"`
}

func detailsOf(h *engine.Held) string {
	d := details{Holder: h.Holder, TTL: h.TTL.Milliseconds(), Metadata: h.Metadata}
	if len(h.Resources) > 1 {
		d.Set = h.Resources
	}
	if d.Set == nil && d.Metadata == nil && plainASCII(d.Holder) { // what json.Marshal writes, without its cost
		return `{"holder":"` + d.Holder + `","ttl":` + strconv.FormatInt(d.TTL, 10) + `}`
	}
	text, err := json.Marshal(d)
	if err != nil {
		panic(err) // strings and a number can be written
	}
	return string(text)
}

// plainASCII reports whether JSON writes a text as it is.
func plainASCII(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return s != ""
}

func parseDetails(text string) details {
	var d details
	_ = json.Unmarshal([]byte(text), &d) // a foreign record tells nothing
	return d
}

// drift is what Redlock takes off the validity of a lease because clocks may run
// at different rates.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
