package tidy

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// tree is a repository: the files that are committed or would be added.
type tree struct {
	dir    string // on disk, for the go command
	module string
	fset   *token.FileSet
	files  map[string][]byte // by slash-separated path
	code   []*source         // the Go files that the go command sees, by path
}

// source is one Go file.
type source struct {
	path      string
	folder    string // "." for the root
	test      bool
	generated bool
	syntax    *ast.File
	fset      *token.FileSet
}

// load reads the repository in dir.
func load(dir string) (*tree, error) {
	t := &tree{dir: dir, fset: token.NewFileSet(), files: map[string][]byte{}}
	paths, err := list(dir)
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(p)))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, but not yet in the index
		}
		if err != nil {
			return nil, err
		}
		t.files[p] = data
		if !strings.HasSuffix(p, ".go") || ignored(p) {
			continue
		}
		syntax, err := parser.ParseFile(t.fset, p, data, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		t.code = append(t.code, &source{path: p, folder: path.Dir(p), test: strings.HasSuffix(p, "_test.go"),
			generated: ast.IsGenerated(syntax), syntax: syntax, fset: t.fset})
	}
	if t.module, err = modulePath(t.files["go.mod"]); err != nil {
		return nil, fmt.Errorf("read go.mod of %s: %w", dir, err)
	}
	return t, nil
}

// list returns the files that git tracks or would add, or all files without git.
func list(dir string) ([]string, error) {
	var paths []string
	if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
		cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
		cmd.Dir = dir
		if out, err := cmd.Output(); err == nil {
			paths = strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
			slices.Sort(paths)
			return paths, nil
		}
	}
	err := fs.WalkDir(os.DirFS(dir), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case d.Type().IsRegular():
			paths = append(paths, p)
		}
		return nil
	})
	return paths, err
}

// ignored reports whether the go command ignores the file because of its path.
func ignored(p string) bool {
	parts := strings.Split(p, "/")
	return slices.ContainsFunc(parts, func(part string) bool {
		return part == "testdata" || part == "vendor" || strings.HasPrefix(part, "_") || strings.HasPrefix(part, ".")
	})
}

func modulePath(gomod []byte) (string, error) {
	for line := range strings.Lines(string(gomod)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "module "); ok {
			return strings.TrimSpace(name), nil
		}
	}
	return "", errors.New("no module line")
}

// ours returns the folder of a package, if it belongs to this repository.
func (t *tree) ours(importPath string) (string, bool) {
	if importPath == t.module {
		return ".", true
	}
	return strings.CutPrefix(importPath, t.module+"/")
}

// below reports whether folder matches a pattern such as "lease" or "cmd/...".
func below(folder, pattern string) bool {
	if parent, ok := strings.CutSuffix(pattern, "/..."); ok {
		return folder == parent || strings.HasPrefix(folder, parent+"/")
	}
	return folder == pattern
}

func belowAny(folder string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return below(folder, p) })
}

func (f *source) line(pos token.Pos) int { return f.fset.Position(pos).Line }

func (f *source) breach(pos token.Pos, format string, args ...any) breach {
	return breach{path: f.path, line: f.line(pos), text: fmt.Sprintf(format, args...)}
}

// importPath returns the path of an import.
func importPath(spec *ast.ImportSpec) string {
	p, _ := strconv.Unquote(spec.Path.Value) // the parser has validated it
	return p
}

func (f *source) imports(p string) bool {
	return slices.ContainsFunc(f.syntax.Imports, func(spec *ast.ImportSpec) bool { return importPath(spec) == p })
}

// uses calls found for every name of package p that the file uses, and with "*" for
// a dot import.
func (f *source) uses(p string, found func(pos token.Pos, name string)) {
	for _, spec := range f.syntax.Imports {
		if importPath(spec) != p {
			continue
		}
		local := path.Base(p)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == "." {
			found(spec.Pos(), "*")
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == local {
					found(s.Pos(), s.Sel.Name)
				}
			}
			return true
		})
	}
}
