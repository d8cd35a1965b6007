package tidy

import (
	"fmt"
	"regexp"
	"strings"
)

var readmeRule = rule{
	name:    "readme",
	why:     "The README shows a program that is compiled and run by a test, and the glossary stays short enough to be read.",
	check:   checkReadme,
	samples: readmeSamples,
}

const (
	readmeFile   = "README.md"
	clientFile   = "examples/client/main.go"
	glossaryFile = "docs/ARCHITECTURE.md"
	maxGlossary  = 30
)

var (
	goBlock  = regexp.MustCompile("(?s)```go\n(.*?)```")
	glossary = regexp.MustCompile(`(?ms)^## Glossary\n(.*?)(?:^## |\z)`)
	tableRow = regexp.MustCompile(`(?m)^\|.*\|$`)
)

// checkReadme checks that the program of the README is examples/client, to the
// byte, and that the glossary has at most 30 rows.
func checkReadme(t *tree) ([]breach, error) {
	var breaches []breach
	readme := string(t.files[readmeFile])
	if block := goBlock.FindStringSubmatchIndex(readme); block == nil {
		breaches = append(breaches, breach{readmeFile, 1, "there is no Go program"})
	} else if readme[block[2]:block[3]] != string(t.files[clientFile]) {
		line := 2 + strings.Count(readme[:block[0]], "\n")
		breaches = append(breaches, breach{readmeFile, line, "the Go program differs from " + clientFile})
	}
	section := glossary.FindSubmatch(t.files[glossaryFile])
	if section == nil {
		return append(breaches, breach{glossaryFile, 1, "there is no section Glossary"}), nil
	}
	rows := len(tableRow.FindAll(section[1], -1)) - 2 // without the head and the line below it
	if rows < 1 || rows > maxGlossary {
		breaches = append(breaches, breach{glossaryFile, 1, fmt.Sprintf("the glossary has %d rows, must have 1 to %d", rows, maxGlossary)})
	}
	return breaches, nil
}

var readmeSamples = []sample{
	{
		name: "the program, and a short glossary",
		files: map[string]string{
			"README.md":               lines("# x", "```go", "package main", "```", "```go", "package other", "```"),
			"examples/client/main.go": lines("package main"),
			"docs/ARCHITECTURE.md":    lines("## Glossary", "| word | meaning |", "|---|---|") + strings.Repeat("| a | b |\n", maxGlossary) + lines("## Rest", "| a | b |"),
		},
	},
	{
		name: "another program, and a long glossary",
		files: map[string]string{
			"README.md":               lines("# x", "```go", "package main ", "```"),
			"examples/client/main.go": lines("package main"),
			"docs/ARCHITECTURE.md":    lines("## Glossary", "| word | meaning |", "|---|---|") + strings.Repeat("| a | b |\n", maxGlossary+1),
		},
		want: []string{
			"README.md:3 the Go program differs from examples/client/main.go",
			"docs/ARCHITECTURE.md:1 the glossary has 31 rows",
		},
	},
	{
		name: "neither",
		files: map[string]string{
			"README.md":            lines("# x"),
			"docs/ARCHITECTURE.md": lines("# The house"),
		},
		want: []string{
			"README.md:1 there is no Go program",
			"docs/ARCHITECTURE.md:1 there is no section Glossary",
		},
	},
}
