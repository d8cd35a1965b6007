package tidy

import (
	"slices"
	"strings"
)

var importsRule = rule{
	name:    "imports",
	why:     "Imports run one way (docs/ARCHITECTURE.md). The import matrix is in internal/tidy/matrix_test.go.",
	check:   checkImports,
	samples: importSamples,
}

func checkImports(t *tree) ([]breach, error) {
	var breaches []breach
	unknown := map[string]bool{}
	for _, f := range t.code {
		p := placeOf(f.folder)
		if p == nil {
			if !unknown[f.folder] {
				unknown[f.folder] = true
				breaches = append(breaches, f.breach(f.syntax.Package,
					"folder %q has no row in the import matrix; add one to internal/tidy/matrix_test.go", f.folder))
			}
			continue
		}
		for _, spec := range f.syntax.Imports {
			if name := importPath(spec); !p.allows(t, f, name) {
				breaches = append(breaches, f.breach(spec.Pos(), "%s may not import %s; it may import %s",
					p.folder, name, p.list(f.test)))
			}
		}
	}
	return breaches, nil
}

// placeOf returns the row of the matrix for a folder: the longest match.
func placeOf(folder string) *place {
	var best *place
	for i := range matrix {
		p := &matrix[i]
		if below(folder, p.folder) && (best == nil || len(p.folder) > len(best.folder)) {
			best = p
		}
	}
	return best
}

func (p *place) allows(t *tree, f *source, name string) bool {
	folder, ours := t.ours(name)
	switch {
	case !ours && isStandard(name):
		return name != "C" || slices.Contains(p.theirs, "*")
	case !ours:
		return isTheirs(name, p.theirs) || f.test && isTheirs(name, testLibraries)
	case folder == f.folder:
		return f.test // an external test package
	case f.test && belowAny(folder, p.inTests):
		return true
	case isHelper(folder):
		return slices.Contains(p.ours, folder) // a pattern such as lease/... does not include it
	default:
		return belowAny(folder, p.ours)
	}
}

// isHelper reports whether the package is for tests only.
func isHelper(folder string) bool { return slices.Contains(helpers, folder) }

// isStandard reports whether the path belongs to the standard library: its first
// element contains no dot.
func isStandard(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return !strings.Contains(first, ".")
}

func isTheirs(name string, modules []string) bool {
	return slices.ContainsFunc(modules, func(m string) bool { return m == "*" || below(name, m+"/...") })
}

// list returns what a place may import, for messages.
func (p *place) list(test bool) string {
	all := slices.Concat(p.ours, p.theirs)
	if test {
		all = slices.Concat(all, p.inTests, testLibraries)
	}
	return strings.Join(append(slices.Compact(slices.Sorted(slices.Values(all))), "the standard library"), ", ")
}
