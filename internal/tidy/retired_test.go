package tidy

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
)

var retiredRule = rule{
	name: "retired-words",
	why: "Earlier versions used these words for ideas that have a common name. Write what docs/ARCHITECTURE.md's " +
		"glossary says. " +
		"The list is in internal/tidy/retired_test.go.",
	check:   checkRetired,
	samples: retiredSamples,
}

// retired maps words and phrases that must not come back to their replacement.
// A word also covers its plural with s. Only words without another use in
// this repository belong here.
var retired = map[string]string{
	"anew":      "again",
	"baton":     "mutex",
	"belief":    "vote, or what a client believes it holds",
	"cable":     "connection, proxy",
	"chronicle": "history",
	"courier":   "message",
	"court":     "checker",
	"deaf":      "unreachable, rejected",
	"door":      "function, entry point",
	"farewell":  "release",
	"hearing":   "subscription",
	"lest":      "so that not",
	"mover":     "migration",
	"nap":       "wait",
	"office":    "leadership",
	"patience":  "timeout",
	"poke":      "wake, notify",
	"prospect":  "joining member",
	"sighting":  "lock record",
	"standing":  "session",
	"stillborn": "expired",
	"stranger":  "not a member",
	"taste":     "profile",
	"tenure":    "session",
	"tidings":   "event",
	"weather":   "network faults",

	"as good as the way": "only as safe as the connection",
	"at the door":        "at the edge",
	"be had":             "be acquired",
	"by its word":        "provisional",
	"by their word":      "provisional",
	"for ever":           "forever",
	"has run out":        "has expired",
	"in the books":       "recorded",
	"is as good":         "counts as",
	"is not believed":    "does not vote",
	"is the other way":   "converts back",
	"is told of":         "is notified of",
	"nobody has heard":   "unknown",
	"says it had":        "had",
	"tries all the same": "retries",
	"what came of":       "the outcome of",
	"what is due":        "the actions that are due",
	"what it comes to":   "the result",
	"what it has missed": "the missed events",
	"what they come to":  "the result",
	"where is listened":  "the listener's address",
	"who waits":          "the waiters",
}

// retiredExempt are files that are not ours to word, and the list itself.
var retiredExempt = []string{"LICENSE", "NOTICE", "go.sum", "retired_test.go"}

func checkRetired(t *tree) ([]breach, error) {
	var breaches []breach
	for name, data := range t.files {
		if bytes.IndexByte(data, 0) >= 0 || slices.Contains(retiredExempt, path.Base(name)) {
			continue
		}
		for _, w := range findRetired(splitWords(name)) {
			breaches = append(breaches, breach{name, 1, "the file name contains " + w.message()})
		}
		for _, w := range findRetired(splitWords(string(data))) {
			breaches = append(breaches, breach{name, w.line, w.message()})
		}
	}
	return breaches, nil
}

// word is one word of a text, in lower case. Identifiers are split at camel
// case, so sessionTenure is two words.
type word struct {
	text   string
	line   int
	joined bool // only spaces and comment markers precede it
}

// splitWords returns the words of a text. It scans bytes, because regular expressions
// take seconds for the whole repository.
func splitWords(text string) []word {
	words := make([]word, 0, len(text)/5)
	line, joined := 1, true
	for i := 0; i < len(text); {
		if !isLetter(text[i]) {
			if text[i] == '\n' {
				line++
			}
			joined = joined && strings.IndexByte(" \t\r\n/#*>_-", text[i]) >= 0
			i++
			continue
		}
		end := i + 1
		for end < len(text) && isLetter(text[end]) && !startsPart(text, end) {
			end++
		}
		words = append(words, word{strings.ToLower(text[i:end]), line, joined})
		i, joined = end, true
	}
	return words
}

func isUpper(c byte) bool  { return 'A' <= c && c <= 'Z' }
func isLetter(c byte) bool { return isUpper(c) || 'a' <= c && c <= 'z' }

// startsPart reports whether a part of an identifier starts at i: an upper case letter
// after a lower case one, or before one, as in HTTPServer.
func startsPart(text string, i int) bool {
	return isUpper(text[i]) && (!isUpper(text[i-1]) || i+1 < len(text) && isLetter(text[i+1]) && !isUpper(text[i+1]))
}

// retiredUse is one use of a retired word or phrase.
type retiredUse struct {
	phrase string
	line   int
}

func (u retiredUse) message() string {
	return fmt.Sprintf("the retired word %q; write %q", u.phrase, retired[u.phrase])
}

// findRetired returns the uses of retired words and phrases.
func findRetired(words []word) []retiredUse {
	var uses []retiredUse
	for i, w := range words {
		for _, phrase := range retiredByFirst[w.text] {
			if startsWith(words[i:], strings.Fields(phrase)[1:]) {
				uses = append(uses, retiredUse{phrase, w.line})
			}
		}
	}
	return uses
}

// startsWith reports whether the words after the first one are rest.
func startsWith(words []word, rest []string) bool {
	if len(words) <= len(rest) {
		return false
	}
	for i, text := range rest {
		if w := words[i+1]; w.text != text || !w.joined {
			return false
		}
	}
	return true
}

// retiredByFirst has the retired phrases by their first word. A single word is also
// listed under its plural.
var retiredByFirst = func() map[string][]string {
	byFirst := map[string][]string{}
	for phrase := range retired {
		first, rest, _ := strings.Cut(phrase, " ")
		byFirst[first] = append(byFirst[first], phrase)
		if rest == "" {
			byFirst[first+"s"] = append(byFirst[first+"s"], phrase)
		}
	}
	return byFirst
}()

var retiredSamples = []sample{
	{
		name: "other words",
		files: map[string]string{
			"lease/release.go": lines("package lease", "// Release is courtly. By its", "// nature, word order is free.",
				"func releaseAll() {}"),
			"docs/A.md": lines("A session by its. Word."),
			"LICENSE":   lines("No farewell."),
			"a.png":     "\x00 farewell",
		},
	},
	{
		name: "retired words",
		files: map[string]string{
			"lease/farewell.go": lines("package lease", "", "// A node is taken by its", "// word.",
				"func sayFarewell() { sighting_of(batonS) }"),
			"docs/A.md": lines("Two Sightings.", "The SIGHTING."),
		},
		want: []string{
			`docs/A.md:1 the retired word "sighting"; write "lock record"`,
			`docs/A.md:2 "sighting"`,
			`lease/farewell.go:1 the file name contains the retired word "farewell"`,
			`lease/farewell.go:3 "by its word"; write "provisional"`,
			`lease/farewell.go:5 "baton"`,
			`lease/farewell.go:5 "farewell"; write "release"`,
			`lease/farewell.go:5 "sighting"`,
		},
	},
}
