package main

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// mutant is one known bug.
type mutant struct {
	Name   string
	Folder string            // the package whose archive contains it
	What   string            // what it breaks
	Test   []string          // arguments of go test
	Runs   int               // how often the test may run until it catches the mutant
	Group  string            // "fast" if make prop runs it, else empty
	Files  map[string]string // the edited sources, by path
}

// archiveName is the file that holds the mutants of a package, below its testdata.
const archiveName = "mutants.txtar"

// find reads the mutants below root whose names match and applies their edits to
// the sources in memory. If group is not empty, it reads that group only.
func find(root fs.FS, names *regexp.Regexp, group string) ([]mutant, error) {
	var mutants []mutant
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Base(name) != archiveName {
			return err
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		sections, err := splitArchive(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, s := range sections {
			if !names.MatchString(s.name) || group != "" && !strings.Contains(s.text, "\ngroup: "+group+"\n") {
				continue
			}
			m, err := read(root, path.Dir(path.Dir(name)), s)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", name, s.name, err)
			}
			mutants = append(mutants, m)
		}
		return nil
	})
	sort.Slice(mutants, func(i, j int) bool { return mutants[i].Name < mutants[j].Name })
	return mutants, err
}

// section is one file of a txtar archive.
type section struct{ name, text string }

// splitArchive splits a txtar archive at its "-- name --" lines. Nothing may
// precede the first one.
func splitArchive(text string) ([]section, error) {
	var sections []section
	for line := range strings.Lines(text) {
		name, isMarker := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "-- ")
		if isMarker {
			name, isMarker = strings.CutSuffix(name, " --")
		}
		switch {
		case isMarker:
			sections = append(sections, section{name: strings.TrimSpace(name)})
		case len(sections) == 0:
			return nil, fmt.Errorf("the first line is %q, want \"-- name --\"", line)
		default:
			sections[len(sections)-1].text += line
		}
	}
	return sections, nil
}

// read parses one mutant of the package in folder and applies its edits.
func read(root fs.FS, folder string, s section) (mutant, error) {
	m := mutant{Name: s.name, Folder: folder, Runs: 1, Files: map[string]string{}}
	head, body, found := strings.Cut(s.text, "\n")
	if !found {
		return m, fmt.Errorf("the mutant has only one line")
	}
	m.What = strings.TrimSpace(head)
	var err error
	file := ""
	for rest := body; rest != ""; {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		key, value, _ := strings.Cut(line, ": ")
		switch {
		case key == "file":
			file = strings.TrimSpace(value)
		case key == "group":
			if m.Group = strings.TrimSpace(value); m.Group != "fast" {
				return m, fmt.Errorf("group: %q is unknown, want \"fast\"", m.Group)
			}
		case key == "runs":
			if m.Runs, err = strconv.Atoi(value); err != nil || m.Runs < 1 {
				return m, fmt.Errorf("runs: %q is not a number above 0", value)
			}
		case key == "test":
			m.Test, err = split(value)
			if err != nil {
				return m, err
			}
		case line == "--- old":
			var old, replacement string
			old, rest, found = strings.Cut(rest, "--- new\n")
			if !found {
				return m, fmt.Errorf("\"--- old\" without \"--- new\"")
			}
			replacement, rest = upToNextPart(rest)
			if err := m.edit(root, file, old, replacement); err != nil {
				return m, err
			}
		case strings.TrimSpace(line) != "":
			return m, fmt.Errorf("cannot parse the line %q", line)
		}
	}
	if len(m.Test) == 0 || len(m.Files) == 0 {
		return m, fmt.Errorf("the mutant needs a test and an edit")
	}
	return m, nil
}

// edit replaces the one occurrence of old.
func (m *mutant) edit(root fs.FS, file, old, replacement string) error {
	source, ok := m.Files[file]
	if !ok {
		data, err := fs.ReadFile(root, file)
		if err != nil {
			return err
		}
		source = string(data)
	}
	if n := strings.Count(source, old); n != 1 {
		return fmt.Errorf("the edit does not fit: its old text occurs %d times in %s, want once", n, file)
	}
	if old == replacement {
		return fmt.Errorf("the edit of %s changes nothing", file)
	}
	m.Files[file] = strings.Replace(source, old, replacement, 1)
	return nil
}

// nextPart matches the line that begins the next pair of old and new.
var nextPart = regexp.MustCompile(`(?m)^(--- old$|file: )`)

// upToNextPart splits text before the next "--- old" or "file:" line.
func upToNextPart(text string) (part, rest string) {
	if at := nextPart.FindStringIndex(text); at != nil {
		return text[:at[0]], text[at[0]:]
	}
	return text, ""
}

// split splits arguments at spaces, but not within single quotes.
func split(s string) ([]string, error) {
	var words []string
	for i, part := range strings.Split(s, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	if strings.Count(s, "'")%2 == 1 {
		return nil, fmt.Errorf("unclosed quote in %q", s)
	}
	return words, nil
}
