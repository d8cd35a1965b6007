package redlockadapter

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// script is one Lua script; a node knows it by the hash of its text.
type script struct {
	name, text, sha string
}

var (
	acquireScript = readScript("acquire")
	raiseScript   = readScript("raise")
	renewScript   = readScript("renew")
	releaseScript = readScript("release")
	inspectScript = readScript("inspect")
	statusScript  = readScript("status")
	prepareScript = readScript("prepare")
	joinScript    = readScript("join")
	initScript    = readScript("init")
	admitScript   = readScript("admit")
)

// laneScripts are loaded when a connection is made; the others are rare, and
// sent with their text.
var laneScripts = []*script{acquireScript, raiseScript, renewScript, releaseScript, inspectScript}

func readScript(name string) *script {
	text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err) // the file is part of the program
	}
	sum := sha1.Sum(text)
	return &script{name: name, text: string(text), sha: hex.EncodeToString(sum[:])}
}
