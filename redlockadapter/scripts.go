package redlockadapter

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// script is one Lua script; a node knows it by the hash of its text.
type script struct {
	name, text, sha string
	begin           []byte // how a call of it begins, as it is sent
}

var (
	acquireScript = readScript("acquire")
	raiseScript   = readScript("raise")
	renewScript   = readScript("renew")
	releaseScript = readScript("release")
	adoptScript   = readScript("adopt")
	inspectScript = readScript("inspect")
	statusScript  = readScript("status")
	prepareScript = readScript("prepare")
	joinScript    = readScript("join")
	initScript    = readScript("init")
	admitScript   = readScript("admit")
	floorScript   = readScript("floor")
	turnScript    = readScript("turn")
)

// laneScripts are loaded when a connection is made; the others are rare, and
// sent with their text.
var laneScripts = []*script{acquireScript, raiseScript, renewScript, releaseScript, adoptScript, inspectScript}

func readScript(name string) *script {
	text, err := Script(name)
	if err != nil {
		panic(err) // the file is part of the program
	}
	sum := sha1.Sum([]byte(text))
	s := &script{name: name, text: text, sha: hex.EncodeToString(sum[:])}
	s.begin = []byte(newArgs("evalsha", s.sha, "1").text)
	return s
}

// Script is the text of a script by its name, such as "acquire", for those who
// want to see or check what runs on their nodes.
func Script(name string) (string, error) {
	text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		return "", fmt.Errorf("no script %q: %w", name, err)
	}
	return string(text), nil
}
