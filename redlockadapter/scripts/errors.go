package scripts

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/redlockadapter/recovery"
	"github.com/leased-project/leased/redlockadapter/redisconn"
)

// Why a node refused a script. Match with errors.Is.
var (
	// ErrEmpty: the node has no state.
	ErrEmpty = errors.New("node has no state and does not vote yet")
	// ErrFleet: the node votes in another fleet.
	ErrFleet = recovery.ErrFleet
	// ErrCeiling: the node may not accept a larger token.
	ErrCeiling = errors.New("node has reached the ceiling of its tokens")
	// ErrEnded: the attempt was released.
	ErrEnded = errors.New("attempt was released")
	// ErrTaken: the lease cannot be renewed, since the lock may have another holder.
	ErrTaken = errors.New("lock was taken by another attempt")
	// ErrLost: the attempt lost the lock before its token was raised.
	ErrLost = errors.New("attempt lost the lock")
)

// refusals are the reasons with which the scripts refuse.
var refusals = map[string]error{"empty": ErrEmpty, "fleet": ErrFleet, "version": engine.ErrVersion,
	"ceiling": ErrCeiling, "ended": ErrEnded, "taken": ErrTaken, "lost": ErrLost, "held": engine.ErrHeld}

// refusalOf returns why a node refused a script.
func refusalOf(got redisconn.Reply) error {
	if err := refusals[got.Word(0)]; err != nil {
		return err
	}
	if got.Word(0) == "format" {
		if err := checkFormat(got.Word(1)); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %q", redisconn.ErrProtocol, got.Words)
}

// checkFormat returns an error unless a state has the format of this build, written as
// the scripts write it.
func checkFormat(text string) error {
	if found, err := strconv.ParseUint(text, 10, 32); err == nil {
		if err := engine.CheckFormat("state of the Redis node", found, FormatVersion); err != nil {
			return err
		}
	}
	if text != strconv.Itoa(FormatVersion) {
		return fmt.Errorf("%w: format %q", redisconn.ErrProtocol, text)
	}
	return nil
}
