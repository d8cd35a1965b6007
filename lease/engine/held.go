package engine

import (
	"time"

	"github.com/leased-project/leased/fencing"
)

// Held is a lease in efficiency mode: everything that a process needs to renew or
// release it, whichever process acquired it.
type Held struct {
	// Name identifies the attempt on the Redis nodes. It is unique across all
	// processes, and empty until the acquire is answered.
	Name      string
	Session   SessionID
	Nonce     Nonce
	Resources []fencing.Resource
	Token     fencing.Token
	TTL       time.Duration
	Holder    string
	User      string // the user that acquired it, as in Party
	Metadata  map[string]string
}
