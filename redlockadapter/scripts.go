package redlockadapter

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strconv"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// script is a Lua script. A node knows it by the hash of its text.
type script struct {
	name, text string
	bySHA      string // the beginning of an EVALSHA call, encoded
	byText     string // the beginning of an EVAL call, for a node that has forgotten the script
}

var (
	acquireScript = loadScript("acquire")
	raiseScript   = loadScript("raise")
	renewScript   = loadScript("renew")
	releaseScript = loadScript("release")
	inspectScript = loadScript("inspect")
	listScript    = loadScript("list")
	reportScript  = loadScript("report")
	joinScript    = loadScript("join")
	initScript    = loadScript("init")
	advanceScript = loadScript("advance")
	reserveScript = loadScript("reserve")
	sweepScript   = loadScript("sweep")
)

// hotScripts are loaded on every new connection.
var hotScripts = []*script{acquireScript, raiseScript, renewScript, releaseScript}

func loadScript(name string) *script {
	text, err := Script(name)
	if err != nil {
		panic(err) // the file is part of the program
	}
	sum := sha1.Sum([]byte(text))
	return &script{name: name, text: text,
		bySHA:  string(appendArgs(nil, "evalsha", hex.EncodeToString(sum[:]))),
		byText: string(appendArgs(nil, "eval", text))}
}

// Script returns the text of a script by its name, such as "acquire", for those
// who want to check what runs on their nodes.
func Script(name string) (string, error) {
	text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		return "", fmt.Errorf("no script %q: %w", name, err)
	}
	return string(text), nil
}

// appendArgs appends arguments as Redis reads them.
func appendArgs(b []byte, args ...string) []byte {
	for _, arg := range args {
		b = appendBulk(b, arg, "")
	}
	return b
}

// appendBulk appends one argument that is made of two parts.
func appendBulk(b []byte, prefix, rest string) []byte {
	b = append(b, '$')
	b = strconv.AppendInt(b, int64(len(prefix)+len(rest)), 10)
	b = append(b, "\r\n"...)
	b = append(b, prefix...)
	b = append(b, rest...)
	return append(b, "\r\n"...)
}
