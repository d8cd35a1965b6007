package tfstate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/leased-project/leased/fencing"
)

// Version is a state that was written. Its time, Who and Operation are for people.
type Version struct {
	Number    int           `json:"number"`
	Time      time.Time     `json:"time"`
	Token     fencing.Token `json:"token"`
	Who       string        `json:"who,omitempty"`
	Operation string        `json:"operation,omitempty"`
	Serial    uint64        `json:"serial"`           // as Terraform counts
	Digest    string        `json:"sha256,omitempty"` // empty if the state was deleted
}

// index is the document of a state.
type index struct {
	Lock     *lock     `json:"lock,omitempty"` // the newest one, nil if it was unlocked
	Versions []Version `json:"versions"`
}

// lock is the lock that may write.
type lock struct {
	Info  LockInfo      `json:"info"`
	Token fencing.Token `json:"token"`
}

// current returns the newest version, or one without a digest if there is none.
func (i *index) current() Version {
	if len(i.Versions) == 0 {
		return Version{}
	}
	return i.Versions[len(i.Versions)-1]
}

// version returns a version that has a state.
func (i *index) version(number int) (Version, error) {
	switch {
	case len(i.Versions) == 0:
		return Version{}, fmt.Errorf("%w: nothing has been written to this state yet", errNotFound)
	case number < 1 || number > len(i.Versions):
		return Version{}, fmt.Errorf("%w: there is no version %d; list the versions with ?versions", errNotFound, number)
	case i.Versions[number-1].Digest == "":
		return Version{}, fmt.Errorf("%w: version %d deleted the state; list the versions with ?versions, and bring one "+
			"back with POST and ?restore=NUMBER", errNotFound, number)
	}
	return i.Versions[number-1], nil
}

// append adds the state that a lock writes. A repeated request adds nothing.
func (i *index) append(by lock, state []byte) {
	last := i.current()
	v := Version{Number: last.Number + 1, Time: time.Now().UTC().Truncate(time.Second), Token: by.Token,
		Who: by.Info.Who, Operation: by.Info.Operation}
	if state != nil {
		var header struct {
			Serial uint64 `json:"serial"`
		}
		_ = json.Unmarshal(state, &header) // a state can be encrypted
		v.Serial, v.Digest = header.Serial, digest(state)
	}
	if last.Token == v.Token && last.Digest == v.Digest {
		return
	}
	i.Versions = append(i.Versions, v)
}

// raise returns a state whose serial is above the serial of every version, so a saved plan that was made with one of
// them stays stale. It returns nil if the serial cannot be changed, as in an encrypted state.
func (i *index) raise(state []byte) (raised []byte, serial uint64) {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(state, &fields)
	for _, name := range []string{"version", "serial", "lineage"} {
		if fields[name] == nil {
			return nil, 0
		}
	}
	for _, v := range i.Versions {
		serial = max(serial, v.Serial+1)
	}
	fields["serial"] = strconv.AppendUint(nil, serial, 10)
	raised, _ = json.MarshalIndent(fields, "", "  ") // it was decoded
	return raised, serial
}

func digest(state []byte) string {
	sum := sha256.Sum256(state)
	return hex.EncodeToString(sum[:])
}

// blob returns the resource of a state with this digest.
func blob(resource fencing.Resource, digest string) fencing.Resource {
	return resource + "@" + fencing.Resource(digest)
}

// load reads the index of a state.
func (h *Handler) load(ctx context.Context, resource fencing.Resource) (index, error) {
	document, err := h.storage.Read(ctx, resource)
	if err != nil {
		return index{}, err
	}
	return decode(resource, document)
}

func decode(resource fencing.Resource, document []byte) (i index, err error) {
	if len(document) > 0 {
		err = json.Unmarshal(document, &i)
	}
	if err != nil {
		err = fmt.Errorf("read the index of %q: %w", string(resource), err)
	}
	return i, err
}

// update changes the index, in one step with the check of the token.
func (h *Handler) update(ctx context.Context, resource fencing.Resource, token fencing.Token,
	change func(*index) error) error {
	return h.storage.Update(ctx, resource, token, func(document []byte) ([]byte, error) {
		i, err := decode(resource, document)
		if err == nil {
			err = change(&i)
		}
		if err != nil {
			return nil, err
		}
		return json.MarshalIndent(i, "", "  ")
	})
}

// state reads the state with this digest.
func (h *Handler) state(ctx context.Context, resource fencing.Resource, want string) ([]byte, error) {
	state, err := h.storage.Read(ctx, blob(resource, want))
	if err == nil && digest(state) != want {
		err = fmt.Errorf("the stored state %s of %q is damaged; restore an earlier version", want, string(resource))
	}
	return state, err
}

// write appends a state to the index, nil for a deletion. Only the lock that the index
// names can do that.
func (h *Handler) write(ctx context.Context, resource fencing.Resource, by lock, state []byte) error {
	if state != nil {
		err := h.storage.Update(ctx, blob(resource, digest(state)), fencing.None, func([]byte) ([]byte, error) {
			return state, nil
		})
		if err != nil {
			return err
		}
	}
	return h.update(ctx, resource, by.Token, func(i *index) error {
		if i.Lock == nil || i.Lock.Info.ID != by.Info.ID {
			return notLocked(resource, by.Info.ID)
		}
		i.append(by, state)
		return nil
	})
}
