package gatetest

import (
	"context"
	"testing"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
)

// Subject is one open handle on a storage behind a gate, like that of one
// process. The suite stores one text value for each resource. All methods must
// be safe for concurrent use.
type Subject interface {
	// Write replaces the value of the resource, through the gate.
	Write(ctx context.Context, resource fencing.Resource, token fencing.Token, value string) error
	// Read returns the value of the resource without going through the gate, and
	// "" if it was never written.
	Read(ctx context.Context, resource fencing.Resource) (string, error)
	// Enter and Mark are the methods of the gate.
	Enter(ctx context.Context, resource fencing.Resource, token fencing.Token) error
	Mark(ctx context.Context, resource fencing.Resource) (fencing.Token, error)
	// Counts and Audit are the methods of the gate's monitor.
	Counts() storagegate.Counts
	Audit(hook func(context.Context, storagegate.Decision))
}

// Pauser is a Subject whose writer can run code between the check and the
// commit. A gate that sends check and write to the storage as one command has
// no such moment and does not need these cases.
type Pauser interface {
	Subject
	// WritePaused is Write with a call of pause after the token was admitted and
	// the value was passed to the storage, and before the commit. If pause
	// returns an error, the write fails with it. If the storage asks for a retry,
	// pause runs again.
	WritePaused(
		ctx context.Context, resource fencing.Resource, token fencing.Token, value string, pause func() error,
	) error
}

// Crasher is a Subject that can crash in the middle of a write.
type Crasher interface {
	Subject
	// Crash does what Write does up to the commit. There its process is killed
	// without a chance to clean up. Crash returns when the process has ended. The
	// subject is not used again.
	Crash(t testing.TB, resource fencing.Resource, token fencing.Token, value string)
}

// Opener opens a handle on one storage and closes it at the end of the test.
// Each call represents another process: the handles share only data and marks. A
// storage that lives in one process returns the same gate again; the suite opens
// all handles of a case with the same rule.
type Opener func(t testing.TB, rule fencing.Rule) Subject

// Monitored is a gate with the methods of the monitor that it embeds.
type Monitored[Tx any] interface {
	storagegate.Gate[Tx]
	Counts() storagegate.Counts
	Audit(hook func(context.Context, storagegate.Decision))
}

// Adapt makes a Subject of a gate that works in transactions: put writes a value
// through the transaction, get reads it without the gate. The Subject is a Resetter
// if the gate is one.
func Adapt[Tx any](
	gate Monitored[Tx],
	put func(ctx context.Context, tx Tx, resource fencing.Resource, value string) error,
	get func(ctx context.Context, resource fencing.Resource) (string, error),
) Pauser {
	a := &adapted[Tx]{Monitored: gate, put: put, get: get}
	if resetter, ok := gate.(storagegate.Resetter); ok {
		return resettable[Tx]{a, resetter}
	}
	return a
}

// resettable is the Subject of a gate that implements storagegate.Resetter.
type resettable[Tx any] struct {
	*adapted[Tx]
	storagegate.Resetter
}

type adapted[Tx any] struct {
	Monitored[Tx]
	put func(ctx context.Context, tx Tx, resource fencing.Resource, value string) error
	get func(ctx context.Context, resource fencing.Resource) (string, error)
}

func (a *adapted[Tx]) Write(ctx context.Context, resource fencing.Resource, token fencing.Token, value string) error {
	return a.Do(ctx, resource, token, func(tx Tx) error { return a.put(ctx, tx, resource, value) })
}

func (a *adapted[Tx]) WritePaused(
	ctx context.Context, resource fencing.Resource, token fencing.Token, value string, pause func() error,
) error {
	return a.Do(ctx, resource, token, func(tx Tx) error {
		if err := a.put(ctx, tx, resource, value); err != nil {
			return err
		}
		return pause()
	})
}

func (a *adapted[Tx]) Read(ctx context.Context, resource fencing.Resource) (string, error) {
	return a.get(ctx, resource)
}
