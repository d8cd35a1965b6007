package tidy

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

var retiredRule = rule{
	name: "retired-words",
	why: "Earlier versions used these words for ideas that have a common name. Write what docs/ARCHITECTURE.md's glossary says. " +
		"The list is in internal/tidy/retired_test.go.",
	check:   checkRetired,
	samples: retiredSamples,
}

// retired maps words and phrases that must not come back to their replacement.
// A word also stands for its plural in s. Only words without another use in
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
	"for ever":           "forever",
	"has run out":        "has expired",
	"in the books":       "recorded",
	"is as good":         "counts as",
	"is not believed":    "does not vote",
	"is the other way":   "converts back",
	"is told of":         "is notified of",
	"nobody has heard":   "unknown",
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

var (
	letters   = regexp.MustCompile(`[A-Za-z]+`)
	camelCase = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)
)

func splitWords(text string) []word {
	var words []word
	line, end := 1, 0
	for _, m := range letters.FindAllStringIndex(text, -1) {
		gap := text[end:m[0]]
		line, end = line+strings.Count(gap, "\n"), m[1]
		joined := strings.Trim(gap, " \t\r\n/#*>_-") == ""
		for _, part := range camelCase.FindAllString(text[m[0]:m[1]], -1) {
			words = append(words, word{strings.ToLower(part), line, joined})
			joined = true
		}
	}
	return words
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
		for phrase, first := range retiredFirst {
			if (w.text == first || w.text == phrase+"s") && startsWith(words[i:], strings.Fields(phrase)[1:]) {
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

// retiredFirst has the first word of each retired phrase.
var retiredFirst = func() map[string]string {
	first := map[string]string{}
	for phrase := range retired {
		first[phrase], _, _ = strings.Cut(phrase, " ")
	}
	return first
}()

var retiredSamples = []sample{
	{
		name: "other words",
		files: map[string]string{
			"lease/release.go": lines("package lease", "// Release is courtly. By its", "// nature, word order is free.", "func releaseAll() {}"),
			"docs/A.md":        lines("A session by its. Word."),
			"LICENSE":          lines("No farewell."),
			"a.png":            "\x00 farewell",
		},
	},
	{
		name: "retired words",
		files: map[string]string{
			"lease/farewell.go": lines("package lease", "", "// A node is taken by its", "// word.", "func sayFarewell() { sighting_of(batonS) }"),
			"docs/A.md":         lines("Two Sightings.", "The SIGHTING."),
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
