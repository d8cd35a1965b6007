package scripts

import (
	"embed"
	"fmt"
	"strconv"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/redlockadapter/redisconn"
)

//go:embed *.lua
var files embed.FS

var (
	acquireScript = load("acquire")
	raiseScript   = load("raise")
	renewScript   = load("renew")
	releaseScript = load("release")
	inspectScript = load("inspect")
	listScript    = load("list")
	reportScript  = load("report")
	joinScript    = load("join")
	initScript    = load("init")
	advanceScript = load("advance")
	reserveScript = load("reserve")
	sweepScript   = load("sweep")
	leaveScript   = load("leave")
)

// Preload are the scripts that every connection needs soon.
var Preload = []*redisconn.Script{acquireScript, raiseScript, renewScript, releaseScript}

func load(name string) *redisconn.Script {
	text, err := Text(name)
	if err != nil {
		panic(err) // the file is part of the program
	}
	return redisconn.NewScript(text)
}

// Text returns the text of a script by its name, such as "acquire".
func Text(name string) (string, error) {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		return "", fmt.Errorf("no script %q: %w", name, err)
	}
	return string(text), nil
}

// FormatVersion is the version of the keys and fields on a node. The field format of the
// node's state has it, and every script that reads the state refuses another one. See
// docs/adr/0030-frozen-formats.md.
const FormatVersion = 1

// The names of keys. The name of every key but one contains the life of the server, so
// that a restarted server has no state under its new name.
//
//	{NAMESPACE}:LIFE:node              the state of the node
//	{NAMESPACE}:LIFE:lock:RESOURCE     the record of a lock
//	{NAMESPACE}:LIFE:waiting:RESOURCE  the processes that wait for it, in order
//	{NAMESPACE}:LIFE:seen:RESOURCE     when each of them asked for it last
//	{NAMESPACE}:life                   the latest life that was initialised
const (
	nodeKey       = "node"
	lifeKey       = "life"
	lockPrefix    = "lock:"
	waitingPrefix = "waiting:"
)

// KeyPrefix begins the name of every key of a namespace.
func KeyPrefix(namespace string) string { return "{" + namespace + "}:" }

// lockKeys returns the keys of the records of locks, after the given ones.
func lockKeys(resources []fencing.Resource, before ...string) []string {
	keys := make([]string, 0, len(before)+len(resources))
	keys = append(keys, before...)
	for _, r := range resources {
		keys = append(keys, lockPrefix+string(r))
	}
	return keys
}

// flag returns a bool as the scripts read it.
func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// longestTime bounds a time in a reply, so that its conversion does not overflow.
const longestTime = 365 * 24 * time.Hour

func fromMillis(text string) (time.Duration, error) {
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms > longestTime.Milliseconds() || ms < -longestTime.Milliseconds() {
		return 0, fmt.Errorf("%w: a time of %.40q ms", redisconn.ErrProtocol, text)
	}
	return time.Duration(ms) * time.Millisecond, nil
}
