package tidy

import (
	"fmt"
	"regexp"
	"strings"
)

var readmeRule = rule{
	name: "readme",
	why: "The README shows a program that a test compiles and runs. docs/ARCHITECTURE.md lists every package, and its " +
		"glossary stays short enough to be read.",
	check:   checkReadme,
	samples: readmeSamples,
}

const (
	readmeFile   = "README.md"
	clientFile   = "examples/client/main.go"
	glossaryFile = "docs/ARCHITECTURE.md"
	packagesFile = glossaryFile
	maxGlossary  = 30
)

var (
	goBlock  = regexp.MustCompile("(?s)```go\n(.*?)```")
	glossary = regexp.MustCompile(`(?ms)^## Glossary\n(.*?)(?:^## |\z)`)
	packages = regexp.MustCompile(`(?ms)^## Packages\n(.*?)(?:^## |\z)`)
	listed   = regexp.MustCompile(`(?m)^ {4}([a-z][\w/-]*)`)
	tableRow = regexp.MustCompile(`(?m)^\|.*\|$`)
)

// groups are folders that stand for all packages below them in the list.
var groups = []string{"storagegate", "cmd/leased", "proptest", "bench", "examples", "integrations"}

// checkReadme checks that the program of the README is examples/client, to the
// byte, that the list of packages is complete and has no others, and that the
// glossary has at most 30 rows.
func checkReadme(t *tree) ([]breach, error) {
	var breaches []breach
	readme := string(t.files[readmeFile])
	if block := goBlock.FindStringSubmatchIndex(readme); block == nil {
		breaches = append(breaches, breach{readmeFile, 1, "there is no Go program"})
	} else if readme[block[2]:block[3]] != string(t.files[clientFile]) {
		line := 2 + strings.Count(readme[:block[0]], "\n")
		breaches = append(breaches, breach{readmeFile, line, "the Go program differs from " + clientFile})
	}
	breaches = append(breaches, t.unlisted()...)
	section := glossary.FindSubmatch(t.files[glossaryFile])
	if section == nil {
		return append(breaches, breach{glossaryFile, 1, "there is no section Glossary"}), nil
	}
	rows := len(tableRow.FindAll(section[1], -1)) - 2 // without the head and the line below it
	if rows < 1 || rows > maxGlossary {
		breaches = append(breaches, breach{glossaryFile, 1, fmt.Sprintf("the glossary has %d rows, must have 1 to %d", rows,
			maxGlossary)})
	}
	return breaches, nil
}

// unlisted compares the folders with Go code with the list of packages.
func (t *tree) unlisted() []breach {
	var breaches []breach
	list := map[string]bool{}
	if section := packages.FindSubmatch(t.files[packagesFile]); section != nil {
		for _, m := range listed.FindAllSubmatch(section[1], -1) {
			list[string(m[1])] = true
		}
	}
	found := map[string]bool{}
	for _, f := range t.code {
		folder := f.folder
		for _, group := range groups {
			if strings.HasPrefix(folder, group+"/") {
				folder = group
			}
		}
		if found[folder] = true; !list[folder] {
			breaches = append(breaches, breach{packagesFile, 1, "the list of packages lacks " + folder})
		}
	}
	for folder := range list {
		if !found[folder] {
			breaches = append(breaches, breach{packagesFile, 1, "the list of packages has " + folder + ", which has no Go code"})
		}
	}
	return breaches
}

var readmeSamples = []sample{
	{
		name: "the program, all packages and a short glossary",
		files: map[string]string{
			"README.md":               lines("# x", "```go", "package main", "```", "```go", "package other", "```"),
			"examples/client/main.go": lines("package main"),
			"docs/ARCHITECTURE.md": lines("## Packages", "", "    examples  programs", "    lease/a   a package", "",
				"## Glossary", "| word | meaning |", "|---|---|") +
				strings.Repeat("| a | b |\n", maxGlossary) + lines("## Rest", "| a | b |"),
			"lease/a/a.go": lines("package a"),
		},
	},
	{
		name: "another program, other packages and a long glossary",
		files: map[string]string{
			"README.md":               lines("# x", "```go", "package main ", "```"),
			"examples/client/main.go": lines("package main"),
			"docs/ARCHITECTURE.md": lines("## Packages", "    examples  programs", "    lease/b   gone", "", "## Glossary",
				"| word | meaning |", "|---|---|") +
				strings.Repeat("| a | b |\n", maxGlossary+1),
			"lease/a/a.go": lines("package a"),
		},
		want: []string{
			"README.md:3 the Go program differs from examples/client/main.go",
			"docs/ARCHITECTURE.md:1 the glossary has 31 rows",
			"docs/ARCHITECTURE.md:1 the list of packages has lease/b, which has no Go code",
			"docs/ARCHITECTURE.md:1 the list of packages lacks lease/a",
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
