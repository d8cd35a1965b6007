package recovery

import (
	"strings"

	"github.com/leased-project/leased/fencing"
)

// LifeName returns the name of a life: one run of a server, from the moment at which it
// was initialised with this join nonce. The nonce distinguishes a machine that was rolled
// back, with the memory of its server, to a time before it was initialised.
func LifeName(server, join string) string { return server + "." + join }

// ServerOf returns the run of the server in the name of a life.
func ServerOf(life string) string {
	server, _, _ := strings.Cut(life, ".")
	return server
}

// Unknown stands for an unknown life in a Set: it may grant, and no report says that it
// does not.
const Unknown = "?"

// Life returns the name of the life that voted when the node answered, empty if it does
// not vote.
func (r Report) Life() string {
	if !r.Reached || r.Live == nil {
		return ""
	}
	return LifeName(r.Server, r.Live.Join)
}

// Set is the set of lives that one version of the topology names, by the order of the
// fleet's addresses. Calls under that version go to these lives only. An empty life is a
// node that no call under that version goes to.
type Set struct {
	Version uint64
	Lives   []string
}

// Closing says whether a set can still grant a lock under its version.
type Closing uint8

const (
	// Open: the set may still grant. A quorum of its lives have ended or can be asked, so
	// the leader can close it by bringing them a newer version.
	Open Closing = iota
	// Unreachable: the set may still grant, and fewer than a quorum of its lives have
	// ended or can be asked. Nobody can tell lives that have ended from those that cannot be reached, so
	// only time closes the set: every process checks the addresses over new connections
	// and drops connections to other lives, within the quarantine of the new life.
	Unreachable
	// Closed: a quorum of the lives refuse the version or have ended.
	Closed
)

// Granted returns an upper bound on the tokens granted under the set's version or an older one:
// the largest token that a quorum of its lives report once they refuse these versions. Every
// grant needed the vote of one of these lives, or of a former life of a node whose floor is above
// the grant. It returns None while fewer than a quorum can tell, for example because they have
// ended, and at least 1 otherwise.
func (s Set) Granted(reports []Report) fencing.Token {
	top, known := fencing.Token(1), 0
	for i, life := range s.Lives {
		if r := reports[i]; life != "" && r.Life() == life && r.Live.Version > s.Version {
			top, known = max(top, r.Live.Max), known+1
		}
	}
	if known < quorum(len(s.Lives)) {
		return fencing.None
	}
	return top
}

// Closing decides whether the set can still grant under its version, from the reports of
// the nodes that the addresses lead to now.
//
// A life that does not vote yet refuses nothing: its init may be late and name the set's
// version. That its server votes in another life does not count either, although init keeps
// the larger version.
func (s Set) Closing(reports []Report) Closing {
	refusing, known := 0, 0
	for i, life := range s.Lives {
		server := ServerOf(life)
		switch r := reports[i]; {
		case life == "" || r.Reached && r.FormerServer == server && r.Server != server:
			refusing++
			known++
		case r.Reached && r.Server == server:
			known++
			if r.Life() == life && r.Live.Version > s.Version {
				refusing++
			}
		}
	}
	switch q := quorum(len(s.Lives)); {
	case refusing >= q:
		return Closed
	case known < q:
		return Unreachable
	}
	return Open
}
