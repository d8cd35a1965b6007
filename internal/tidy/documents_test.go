package tidy

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

var linksRule = rule{
	name:    "links",
	why:     "A reader follows links, file names and test names. Fix the document, or restore what it names.",
	check:   checkLinks,
	samples: linksSamples,
}

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	fenced   = regexp.MustCompile("(?ms)^```.*?^```")
	testName = regexp.MustCompile("`(Test[A-Z]\\w*)`")
	codePath = regexp.MustCompile("`((?:[\\w-]+/)+[\\w.-]+\\.(?:go|lua|proto|txtar|md|yaml))`")
	codeName = regexp.MustCompile("`([\\w/.-]+\\.go):(\\w+(?:\\.\\w+)?)`")
	docPath  = regexp.MustCompile(`\bdocs/[A-Za-z0-9_/.-]+\.md\b`)
)

// checkLinks checks what documents point at: the files and headings of relative
// links, files, functions and tests by name, and in Go comments the documents themselves.
func checkLinks(t *tree) ([]breach, error) {
	var breaches []breach
	tests := t.testNames()
	for name, data := range t.files {
		report := func(offset int, format string, args ...any) {
			line := 1 + strings.Count(string(data[:offset]), "\n")
			breaches = append(breaches, breach{name, line, fmt.Sprintf(format, args...)})
		}
		switch path.Ext(name) {
		case ".go", ".proto", ".lua":
			for _, m := range docPath.FindAllIndex(data, -1) {
				if p := string(data[m[0]:m[1]]); t.files[p] == nil && !strings.HasPrefix(name, "internal/tidy/") {
					report(m[0], "there is no %s", p)
				}
			}
		case ".md":
			text := withoutCode(string(data))
			for _, m := range link.FindAllStringSubmatchIndex(text, -1) {
				if problem := t.linkProblem(name, text[m[2]:m[3]]); problem != "" {
					report(m[0], "%s", problem)
				}
			}
			for _, m := range codePath.FindAllStringSubmatchIndex(text, -1) {
				if p := text[m[2]:m[3]]; !t.hasSuffix(p) {
					report(m[0], "there is no file %s", p)
				}
			}
			for _, m := range codeName.FindAllStringSubmatchIndex(text, -1) {
				if file, name := text[m[2]:m[3]], text[m[4]:m[5]]; !t.declares(file, name) {
					report(m[0], "%s declares no function %s", file, name)
				}
			}
			for _, m := range testName.FindAllStringSubmatchIndex(text, -1) {
				if test := text[m[2]:m[3]]; !tests[test] {
					report(m[0], "there is no test %s", test)
				}
			}
		}
	}
	return breaches, nil
}

// hasSuffix reports whether a file has this path, in the root or in a folder.
func (t *tree) hasSuffix(p string) bool {
	for name := range t.files {
		if name == p || strings.HasSuffix(name, "/"+p) {
			return true
		}
	}
	return false
}

// declares reports whether a Go file declares a function, or a method as Type.Name.
func (t *tree) declares(file, name string) bool {
	for _, f := range t.code {
		if f.path != file {
			continue
		}
		for _, decl := range f.syntax.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && (d.Recv == nil && d.Name.Name == name || d.Recv != nil &&
				receiver(d)+"."+d.Name.Name == name) {
				return true
			}
		}
	}
	return false
}

// withoutCode blanks the fenced code of a document and keeps its line numbers.
func withoutCode(text string) string {
	return fenced.ReplaceAllStringFunc(text, func(code string) string {
		return regexp.MustCompile(`[^\n]`).ReplaceAllString(code, " ")
	})
}

// linkProblem returns why a link of a document leads nowhere, or "".
func (t *tree) linkProblem(document, target string) string {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return ""
	}
	file, anchor, _ := strings.Cut(target, "#")
	to := document
	if file != "" {
		to = path.Join(path.Dir(document), file)
	}
	if t.files[to] == nil {
		for p := range t.files {
			if strings.HasPrefix(p, to+"/") {
				return "" // a folder
			}
		}
		return fmt.Sprintf("the link leads to %s, which does not exist", to)
	}
	if anchor != "" && strings.HasSuffix(to, ".md") && !slices.Contains(anchors(string(t.files[to])), anchor) {
		return fmt.Sprintf("%s has no heading #%s", to, anchor)
	}
	return ""
}

// anchors returns the anchors that GitHub gives to the headings of a document.
func anchors(text string) []string {
	var list []string
	for _, m := range heading.FindAllStringSubmatch(withoutCode(text), -1) {
		kept := strings.Map(func(r rune) rune {
			if r == ' ' {
				return '-'
			}
			if r == '-' || r == '_' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
				return r
			}
			return -1
		}, strings.ToLower(m[1]))
		list = append(list, kept)
	}
	return list
}

// testNames returns the names of all test functions of the tree.
func (t *tree) testNames() map[string]bool {
	names := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for name, data := range t.files {
		if strings.HasSuffix(name, "_test.go") {
			for _, m := range declared.FindAllSubmatch(data, -1) {
				names[string(m[1])] = true
			}
		}
	}
	return names
}

var linksSamples = []sample{
	{
		name: "links that lead somewhere",
		files: map[string]string{
			"README.md": lines("[a](docs/A.md#two-words-here), [b](docs/), [c](https://example.com/x), [d](#top)", "# Top",
				"```", "[x](nowhere)", "```"),
			"docs/A.md": lines("# Two words, here!",
				"[up](../README.md), `TestA`, `go test -run TestZ`, `lease/a.go`, `docs/A.md`, `a/b.txt`, `lease/a.go:f`, "+
					"`lease/a.go:T.M`"),
			"lease/a.go":      lines("package lease", "// See docs/A.md.", "type T int", "func (*T) M() {}", "func f() {}"),
			"lease/a_test.go": lines("package lease", "func TestA(t *testing.T) {}"),
		},
	},
	{
		name: "links that lead nowhere",
		files: map[string]string{
			"README.md":  lines("[a](docs/B.md)", "", "[b](docs/A.md#three) and [c](#top)"),
			"docs/A.md":  lines("# Two", "See `TestB` and `lease/b.go`.", "`lease/a.go:M`, `lease/a.go:U.M`, `lease/b.go:f`"),
			"lease/a.go": lines("package lease", "// See docs/B.md.", "type T int", "func (T) M() {}"),
		},
		want: []string{
			"README.md:1 leads to docs/B.md, which does not exist",
			"README.md:3 README.md has no heading #top",
			"README.md:3 docs/A.md has no heading #three",
			"docs/A.md:2 there is no file lease/b.go",
			"docs/A.md:2 there is no test TestB",
			"docs/A.md:3 lease/a.go declares no function M",
			"docs/A.md:3 lease/a.go declares no function U.M",
			"docs/A.md:3 lease/b.go declares no function f",
			"lease/a.go:2 there is no docs/B.md",
		},
	},
}
